//! Settings that all programs have, by environment.
//!
//! A setting that cannot be used is an error that names the variable and says what is expected. What
//! may hold a secret is never shown.

use std::{
    fmt,
    num::NonZeroU64,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// What every program is told.
#[derive(Clone, Debug)]
pub struct Common {
    /// Where HTTP is served; each service's own port unless set.
    pub http: Option<String>,
    /// Where files are kept.
    pub data: PathBuf,
    /// Where each service keeps its state.
    pub store: Stores,
    /// What carries the events.
    pub transport: Carrier,
    /// Redis in front of the HTTP edge's store.
    #[cfg(feature = "servers")]
    pub redis: Option<Secret>,
    /// How long whoever was killed is waited for: a relay, a member of a group on the embedded log.
    pub lease: Option<Duration>,
    /// How long a request may take; its key is free again for others after three times that.
    pub request: Option<Duration>,
}

/// Where services keep their state.
#[derive(Clone, Debug)]
pub enum Stores {
    /// In SQLite, in a file for each service in this folder.
    Folder(PathBuf),
    /// In SQLite, at a path in which `{service}` stands for the service's name.
    Sqlite(String),
    /// In PostgreSQL, at a URL in which `{service}` stands for the service's name.
    #[cfg(feature = "servers")]
    Postgres(Secret),
}

impl Stores {
    /// The place of one service's database: a path or a URL, which may hold a secret.
    pub fn place(&self, service: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(format!("{service}.db")).to_string_lossy().into_owned(),
            Self::Sqlite(path) => path.replace("{service}", service),
            #[cfg(feature = "servers")]
            Self::Postgres(url) => url.expose().replace("{service}", service),
        }
    }

    /// Whether each service has a place of its own.
    pub fn tells_services_apart(&self) -> bool {
        match self {
            Self::Folder(_) => true,
            Self::Sqlite(place) => place.contains("{service}"),
            #[cfg(feature = "servers")]
            Self::Postgres(Secret(place)) => place.contains("{service}"),
        }
    }

    /// The variable that chose it.
    pub fn chosen_by(&self) -> &'static str {
        if let Self::Folder(_) = self { "MALOTE_DATA" } else { "MALOTE_STORE" }
    }
}

/// What carries the events.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// A log in a file.
    Embedded {
        /// The file.
        path: PathBuf,
        /// The variable that chose it.
        chosen_by: &'static str,
    },
    /// Kafka.
    #[cfg(feature = "servers")]
    Kafka {
        /// `kafka://host:port[,…][?setting=value…]`.
        url: Secret,
        /// How long a silent member keeps its partitions.
        session: Option<Duration>,
        /// This member's lasting name.
        instance: Option<String>,
    },
}

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for those who need it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The variable.
    pub name: &'static str,
    /// What is expected, or what is wrong.
    pub why: String,
}

impl Invalid {
    /// Says why a variable cannot be used.
    pub fn new(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, why: why.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for Invalid {}

/// Looks variables up; an empty one counts as unset.
pub struct Lookup<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Lookup<'_> {
    /// As it is written.
    pub fn text(&self, name: &'static str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// What is never shown.
    pub fn secret(&self, name: &'static str) -> Option<Secret> {
        self.text(name).map(Secret)
    }

    /// Whatever can be read from text.
    pub fn parsed<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<Option<T>, Invalid> {
        let parse = |value: String| {
            value.parse().map_err(|_| Invalid::new(name, format!("{expected} is expected, not {value:?}")))
        };
        self.text(name).map(parse).transpose()
    }

    /// A whole number.
    pub fn within(&self, name: &'static str, default: i64, range: RangeInclusive<i64>) -> Result<i64, Invalid> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let value = self.parsed(name, &expected)?.unwrap_or(default);
        let wrong = || Invalid::new(name, format!("{expected} is expected, not {value}"));
        if range.contains(&value) { Ok(value) } else { Err(wrong()) }
    }

    /// A lease that is shorter would be lost by whoever waits for a disk; one that is longer would hold
    /// up a service for hours after a crash.
    fn lease(&self, name: &'static str) -> Result<Option<Duration>, Invalid> {
        let range = 500..=3_600_000;
        match self.milliseconds(name)? {
            Some(lease) if !range.contains(&lease.as_millis()) => {
                let expected = format!("{} to {} milliseconds are expected", range.start(), range.end());
                Err(Invalid::new(name, format!("{expected}, not {}", lease.as_millis())))
            }
            lease => Ok(lease),
        }
    }

    /// A time.
    pub fn milliseconds(&self, name: &'static str) -> Result<Option<Duration>, Invalid> {
        let value: Option<NonZeroU64> = self.parsed(name, "a number of milliseconds, at least 1")?;
        Ok(value.map(|ms| Duration::from_millis(ms.get())))
    }
}

/// The variables and what they do, for `--help`: those that all programs read, around those of one. `http` says where
/// its services are served unless told otherwise.
pub fn help(http: &str, own: &str) -> String {
    format!(
        "\
Environment:
  MALOTE_HTTP                   where HTTP is served [{http}]
  MALOTE_DATA                   where files are kept [./data]
  MALOTE_STORE                  each service's database: a path, sqlite:PATH or postgres://…; {{service}} stands for the
                                service's name [$MALOTE_DATA/{{service}}.db]
  MALOTE_TRANSPORT              embedded:PATH, or kafka://host:port[,…][?setting=value&…] [embedded:$MALOTE_DATA/log.db]
  MALOTE_KAFKA_INSTANCE         this member's lasting name, so that a restart moves no partitions
  MALOTE_KAFKA_SESSION_MS       how long a silent member keeps its partitions [45000]
  MALOTE_LEASE_MS               how long a killed process is waited for, 500 to 3600000 [5000; 3000 on the embedded log]
  MALOTE_REQUEST_MS             how long a request may take; if its process is killed, its key is taken for three times
                                that [10000]
  MALOTE_REDIS                  redis://… in front of the idempotency keys [none]
  {own}
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces and metrics go by OTLP [nowhere; metrics are at /metrics in any case]
  RUST_LOG                      what is logged to standard error [info]"
    )
}

impl Common {
    /// Reads what all programs are told.
    pub fn read(env: &Lookup<'_>) -> Result<Self, Invalid> {
        #[cfg(not(feature = "servers"))]
        files_only(env)?;
        let data = PathBuf::from(env.text("MALOTE_DATA").unwrap_or_else(|| "./data".into()));
        Ok(Self {
            http: http(env)?,
            store: stores(env, &data)?,
            transport: carrier(env, &data)?,
            #[cfg(feature = "servers")]
            redis: env.secret("MALOTE_REDIS"),
            lease: env.lease("MALOTE_LEASE_MS")?,
            request: env.milliseconds("MALOTE_REQUEST_MS")?,
            data,
        })
    }

    /// Where the data of these services is, and the events; of what may hold a secret, only its kind.
    pub fn places(&self, services: &[&str]) -> String {
        let data = match &self.store {
            #[cfg(feature = "servers")]
            Stores::Postgres(_) => "PostgreSQL (MALOTE_STORE)".into(),
            files => services.iter().map(|name| files.place(name)).collect::<Vec<_>>().join(", "),
        };
        let log = match &self.transport {
            Carrier::Embedded { path, .. } => path.display().to_string(),
            #[cfg(feature = "servers")]
            Carrier::Kafka { .. } => "Kafka (MALOTE_TRANSPORT)".into(),
        };
        format!("Data:     {data}\nEvents:   {log}")
    }
}

/// What was not compiled in is not passed over in silence.
#[cfg(not(feature = "servers"))]
fn files_only(env: &Lookup<'_>) -> Result<(), Invalid> {
    let urls = [
        ("MALOTE_STORE", "postgres"),
        ("MALOTE_TRANSPORT", "kafka:"),
        ("MALOTE_REDIS", ""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
    ];
    match urls.into_iter().find(|(name, scheme)| env.text(name).is_some_and(|url| url.starts_with(scheme))) {
        Some((name, _)) => Err(Invalid::new(
            name,
            "this program was built with files only, without the feature `servers`: `make up` runs the services with servers",
        )),
        None => Ok(()),
    }
}

fn http(env: &Lookup<'_>) -> Result<Option<String>, Invalid> {
    let Some(address) = env.text("MALOTE_HTTP") else { return Ok(None) };
    if let Some((scheme, rest)) = address.split_once("://") {
        let rest = rest.trim_end_matches('/');
        return Err(Invalid::new("MALOTE_HTTP", format!("leave out {scheme}:// and write {rest:?}")));
    }
    let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>().ok()));
    match port.flatten() {
        Some(_) => Ok(Some(address)),
        None => {
            Err(Invalid::new("MALOTE_HTTP", format!("an address such as 127.0.0.1:8080 is expected, not {address:?}")))
        }
    }
}

fn stores(env: &Lookup<'_>, data: &Path) -> Result<Stores, Invalid> {
    let Some(place) = env.text("MALOTE_STORE") else {
        return Ok(Stores::Folder(data.to_owned()));
    };
    match place.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "servers")]
        Some("postgres" | "postgresql") => Ok(Stores::Postgres(Secret(place))),
        Some("sqlite") | None => Ok(Stores::Sqlite(place)),
        Some(scheme) => {
            let why = format!("a path, sqlite:PATH or postgres://… is expected; {scheme:?} is none of these");
            Err(Invalid::new("MALOTE_STORE", why))
        }
    }
}

fn carrier(env: &Lookup<'_>, data: &Path) -> Result<Carrier, Invalid> {
    // Read before it is known whether Kafka carries: a bad setting is told on the day it is made.
    #[cfg(feature = "servers")]
    let session = env.milliseconds("MALOTE_KAFKA_SESSION_MS")?;
    let Some(url) = env.text("MALOTE_TRANSPORT") else {
        return Ok(Carrier::Embedded { path: data.join("log.db"), chosen_by: "MALOTE_DATA" });
    };
    match url.strip_prefix("embedded:") {
        Some(path) if !path.is_empty() => Ok(Carrier::Embedded { path: path.into(), chosen_by: "MALOTE_TRANSPORT" }),
        #[cfg(feature = "servers")]
        None if url.starts_with("kafka://") => {
            Ok(Carrier::Kafka { url: Secret(url), session, instance: env.text("MALOTE_KAFKA_INSTANCE") })
        }
        _ => Err(Invalid::new("MALOTE_TRANSPORT", "embedded:PATH or kafka://host:port[,host:port…] is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Common, Invalid> {
        let found = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Common::read(&Lookup(&found))
    }

    #[test]
    fn nothing_need_be_set() {
        let config = read(&[("MALOTE_STORE", "")]).expect("fine");
        assert_eq!(config.store.place("ledger"), "./data/ledger.db");
        assert!(matches!(config.transport, Carrier::Embedded { path, .. } if path.ends_with("data/log.db")));
    }

    #[test]
    fn a_folder_is_taken_as_it_is_written() {
        let config = read(&[("MALOTE_DATA", "/srv/{service}")]).expect("fine");
        assert_eq!(config.store.place("ledger"), "/srv/{service}/ledger.db");
        let config = read(&[("MALOTE_STORE", "/srv/{service}/{service}.db")]).expect("fine");
        assert_eq!(config.store.place("ledger"), "/srv/ledger/ledger.db");
    }

    #[test]
    fn a_scheme_before_the_address_is_to_be_left_out() {
        let error = read(&[("MALOTE_HTTP", "http://127.0.0.1:8080/")]).expect_err("refused").to_string();
        assert!(error.contains("leave out http://") && error.contains("\"127.0.0.1:8080\""), "{error}");
    }
}
