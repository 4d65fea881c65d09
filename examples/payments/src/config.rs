//! Settings, all of them by environment; `payments --help` lists them.
//!
//! A setting that cannot be used is an error that names the variable and says what is expected. What
//! may hold a secret is never shown.

use crate::{api, risk::Rules};
use lettre::message::Mailbox;
use std::{fmt, num::NonZeroU64, path::PathBuf, str::FromStr, time::Duration};

/// Every setting.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where HTTP is served; each service's own port unless set.
    pub http: Option<String>,
    /// Where files are kept.
    pub data: PathBuf,
    /// Where each service keeps its state.
    pub store: Stores,
    /// What carries the events.
    pub transport: Carrier,
    /// Redis in front of the HTTP edge's store.
    pub redis: Option<Secret>,
    /// How long whoever was killed is waited for: a relay, a member of a group on the embedded log.
    pub lease: Option<Duration>,
    /// How long a request may take; its key is free again for others after three times that.
    pub request: Option<Duration>,
    /// How long a payment may be without an outcome; then it is under review.
    pub deadline: Duration,
    /// What may be asked for.
    pub limits: api::Limits,
    /// What fraud holds payments against.
    pub rules: Rules,
    /// Where notices go.
    pub notices: Notices,
}

/// Where services keep their state.
#[derive(Clone, Debug)]
pub enum Stores {
    /// In SQLite, in a file for each service in this folder.
    Folder(PathBuf),
    /// In SQLite, at a path in which `{service}` stands for the service's name.
    Sqlite(String),
    /// In PostgreSQL, at a URL in which `{service}` stands for the service's name.
    Postgres(Secret),
}

impl Stores {
    /// The place of one service's database: a path or a URL, which may hold a secret.
    pub fn place(&self, service: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(format!("{service}.db")).to_string_lossy().into_owned(),
            Self::Sqlite(path) => path.replace("{service}", service),
            Self::Postgres(url) => url.expose().replace("{service}", service),
        }
    }

    /// Whether each service has a place of its own.
    pub fn tells_services_apart(&self) -> bool {
        match self {
            Self::Folder(_) => true,
            Self::Sqlite(place) | Self::Postgres(Secret(place)) => place.contains("{service}"),
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
    Kafka {
        /// `kafka://host:port[,…][?setting=value…]`.
        url: Secret,
        /// How long a silent member keeps its partitions.
        session: Option<Duration>,
        /// This member's lasting name.
        instance: Option<String>,
    },
}

/// Where notices go.
#[derive(Clone, Debug)]
pub enum Notices {
    /// Files in a folder.
    Mailbox(PathBuf),
    /// Mails by a server at `host:port`.
    Smtp {
        /// The server.
        host: String,
        /// Its port.
        port: u16,
        /// The sender.
        from: Mailbox,
        /// The receiver.
        to: Mailbox,
    },
    /// JSON to an address.
    Webhook(Secret),
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

/// The variables and what they do, for `--help`.
pub const HELP: &str = "\
Environment:
  MALOTE_HTTP                   where HTTP is served [127.0.0.1:8080; 8081 fraud, 8082 ledger, 8083 notification]
  MALOTE_DATA                   where files are kept [./data]
  MALOTE_STORE                  each service's database: a path, sqlite:PATH or postgres://…; {service} stands for the
                                service's name [$MALOTE_DATA/{service}.db]
  MALOTE_TRANSPORT              embedded:PATH, or kafka://host:port[,…][?setting=value&…] [embedded:$MALOTE_DATA/log.db]
  MALOTE_KAFKA_INSTANCE         this member's lasting name, so that a restart moves no partitions
  MALOTE_KAFKA_SESSION_MS       how long a silent member keeps its partitions [45000]
  MALOTE_LEASE_MS               how long a killed process is waited for, 500 to 3600000 [5000; 3000 on the embedded log]
  MALOTE_REQUEST_MS             how long a request may take; if its process is killed, its key is taken for three times
                                that [10000]
  MALOTE_PAYMENT_DEADLINE_MS    how long a payment may be without an outcome; then it is UNDER_REVIEW [60000]
  MALOTE_REDIS                  redis://… in front of the idempotency keys [none]
  MALOTE_MAX_AMOUNT             largest amount of a payment, in minor units [1000000000000000]
  MALOTE_FRAUD_APPROVE_PERCENT  how many of a hundred payments fraud approves [70]
  MALOTE_FRAUD_SALT             goes into fraud's score, so that nobody outside can tell it [empty]
  MALOTE_FRAUD_LIMIT            largest amount that fraud approves, in minor units [1000000000000]
  MALOTE_FRAUD_PER_MINUTE       how many payments an account may make in a minute [any number]
  MALOTE_SMTP                   host:port of a mail server for notices
  MALOTE_MAIL_FROM, _TO         between whom mails go [payments@localhost, customers@localhost]
  MALOTE_WEBHOOK                http://… that takes notices as JSON, instead of mails
                                [neither: files in $MALOTE_DATA/mailbox]
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces and metrics go by OTLP [nowhere; metrics are at /metrics in any case]
  RUST_LOG                      what is logged to standard error [info]";

/// Looks variables up; an empty one counts as unset.
struct Lookup<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Lookup<'_> {
    fn text(&self, name: &'static str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn secret(&self, name: &'static str) -> Option<Secret> {
        self.text(name).map(Secret)
    }

    fn parsed<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<Option<T>, Invalid> {
        let parse = |value: String| {
            value.parse().map_err(|_| Invalid::new(name, format!("{expected} is expected, not {value:?}")))
        };
        self.text(name).map(parse).transpose()
    }

    fn within(&self, name: &'static str, default: i64, range: std::ops::RangeInclusive<i64>) -> Result<i64, Invalid> {
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

    fn milliseconds(&self, name: &'static str) -> Result<Option<Duration>, Invalid> {
        let value: Option<NonZeroU64> = self.parsed(name, "a number of milliseconds, at least 1")?;
        Ok(value.map(|ms| Duration::from_millis(ms.get())))
    }
}

impl Config {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, Invalid> {
        Self::read(&|name| std::env::var(name).ok())
    }

    /// Reads variables by `lookup`.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let env = Lookup(lookup);
        let data = PathBuf::from(env.text("MALOTE_DATA").unwrap_or_else(|| "./data".into()));
        Ok(Self {
            http: http(&env)?,
            store: stores(&env, &data)?,
            transport: carrier(&env, &data)?,
            redis: env.secret("MALOTE_REDIS"),
            lease: env.lease("MALOTE_LEASE_MS")?,
            request: env.milliseconds("MALOTE_REQUEST_MS")?,
            deadline: env.milliseconds("MALOTE_PAYMENT_DEADLINE_MS")?.unwrap_or(Duration::from_secs(60)),
            limits: api::Limits {
                amount: env.within("MALOTE_MAX_AMOUNT", api::Limits::default().amount, 1..=i64::MAX)?,
            },
            rules: rules(&env)?,
            notices: notices(&env, &data)?,
            data,
        })
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

fn stores(env: &Lookup<'_>, data: &std::path::Path) -> Result<Stores, Invalid> {
    let Some(place) = env.text("MALOTE_STORE") else {
        return Ok(Stores::Folder(data.to_owned()));
    };
    match place.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => Ok(Stores::Postgres(Secret(place))),
        Some("sqlite") | None => Ok(Stores::Sqlite(place)),
        Some(scheme) => {
            let why = format!("a path, sqlite:PATH or postgres://… is expected; {scheme:?} is none of these");
            Err(Invalid::new("MALOTE_STORE", why))
        }
    }
}

fn carrier(env: &Lookup<'_>, data: &std::path::Path) -> Result<Carrier, Invalid> {
    let session = env.milliseconds("MALOTE_KAFKA_SESSION_MS")?;
    let instance = env.text("MALOTE_KAFKA_INSTANCE");
    let Some(url) = env.text("MALOTE_TRANSPORT") else {
        return Ok(Carrier::Embedded { path: data.join("log.db"), chosen_by: "MALOTE_DATA" });
    };
    match url.strip_prefix("embedded:") {
        Some(path) if !path.is_empty() => Ok(Carrier::Embedded { path: path.into(), chosen_by: "MALOTE_TRANSPORT" }),
        None if url.starts_with("kafka://") => Ok(Carrier::Kafka { url: Secret(url), session, instance }),
        _ => Err(Invalid::new("MALOTE_TRANSPORT", "embedded:PATH or kafka://host:port[,host:port…] is expected")),
    }
}

fn rules(env: &Lookup<'_>) -> Result<Rules, Invalid> {
    let default = Rules::default();
    let percent = env.within("MALOTE_FRAUD_APPROVE_PERCENT", default.approve_percent.into(), 0..=100)?;
    Ok(Rules {
        approve_percent: percent.try_into().unwrap_or(100),
        salt: env.text("MALOTE_FRAUD_SALT").unwrap_or_default(),
        limit: env.within("MALOTE_FRAUD_LIMIT", default.limit, 1..=i64::MAX)?,
        per_minute: env.parsed("MALOTE_FRAUD_PER_MINUTE", "a number of payments")?,
    })
}

fn notices(env: &Lookup<'_>, data: &std::path::Path) -> Result<Notices, Invalid> {
    let address = |name, default: &str| {
        let address = env.text(name).unwrap_or_else(|| default.into());
        address.parse().map_err(|_| Invalid::new(name, format!("a mail address is expected, not {address:?}")))
    };
    match (env.text("MALOTE_SMTP"), env.secret("MALOTE_WEBHOOK")) {
        (Some(_), Some(_)) => {
            Err(Invalid::new("MALOTE_SMTP", "MALOTE_WEBHOOK is set too: notices go one way, unset one"))
        }
        (Some(server), None) => {
            let expected = || Invalid::new("MALOTE_SMTP", format!("host:port is expected, not {server:?}"));
            let (host, port) = server.rsplit_once(':').ok_or_else(expected)?;
            Ok(Notices::Smtp {
                host: host.into(),
                port: port.parse().map_err(|_| expected())?,
                from: address("MALOTE_MAIL_FROM", "payments@localhost")?,
                to: address("MALOTE_MAIL_TO", "customers@localhost")?,
            })
        }
        (None, Some(url)) if url.expose().starts_with("http://") => Ok(Notices::Webhook(url)),
        (None, Some(_)) => Err(Invalid::new("MALOTE_WEBHOOK", "an address that begins with http:// is expected")),
        (None, None) => Ok(Notices::Mailbox(data.join("mailbox"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, Invalid> {
        let found = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Config::read(&found)
    }

    #[test]
    fn nothing_need_be_set() {
        let config = read(&[("MALOTE_STORE", "")]).expect("fine");
        assert_eq!(config.store.place("ledger"), "./data/ledger.db");
        assert!(matches!(config.transport, Carrier::Embedded { path, .. } if path.ends_with("data/log.db")));
        assert!(matches!(config.notices, Notices::Mailbox(path) if path.ends_with("data/mailbox")));
        assert_eq!(config.rules, Rules::default());
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

    #[test]
    fn each_bad_setting_is_named_and_no_secret_is_shown() {
        for (name, value) in [
            ("MALOTE_HTTP", "8080"),
            ("MALOTE_HTTP", ":8080"),
            ("MALOTE_HTTP", "127.0.0.1:99999"),
            ("MALOTE_STORE", "mysql://u:canary@h/d"),
            ("MALOTE_TRANSPORT", "amqp://u:canary@h"),
            ("MALOTE_TRANSPORT", "embedded:"),
            ("MALOTE_LEASE_MS", "5s"),
            ("MALOTE_LEASE_MS", "0"),
            ("MALOTE_LEASE_MS", "499"),
            ("MALOTE_LEASE_MS", "3600001"),
            ("MALOTE_REQUEST_MS", "-5"),
            ("MALOTE_PAYMENT_DEADLINE_MS", "0"),
            ("MALOTE_KAFKA_SESSION_MS", "-1"),
            ("MALOTE_MAX_AMOUNT", "0"),
            ("MALOTE_MAX_AMOUNT", "1e15"),
            ("MALOTE_FRAUD_APPROVE_PERCENT", "101"),
            ("MALOTE_FRAUD_LIMIT", "x"),
            ("MALOTE_FRAUD_PER_MINUTE", "-1"),
            ("MALOTE_SMTP", "mail"),
            ("MALOTE_WEBHOOK", "https://u:canary@h"),
        ] {
            let error = read(&[(name, value)]).expect_err(value);
            assert_eq!(error.name, name);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let both = read(&[("MALOTE_SMTP", "mail:25"), ("MALOTE_WEBHOOK", "http://h")]).expect_err("two ways");
        assert_eq!(both.name, "MALOTE_SMTP");
        assert_eq!(
            read(&[("MALOTE_SMTP", "mail:25"), ("MALOTE_MAIL_TO", "x")]).expect_err("no address").name,
            "MALOTE_MAIL_TO"
        );
    }

    #[test]
    fn settings_can_be_shown_without_their_secrets() {
        let config = read(&[
            ("MALOTE_STORE", "postgres://u:canary@h/{service}"),
            ("MALOTE_TRANSPORT", "kafka://h:9092?sasl.password=canary"),
            ("MALOTE_REDIS", "redis://:canary@h"),
            ("MALOTE_WEBHOOK", "http://h/canary"),
        ])
        .expect("fine");
        let shown = format!("{config:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}
