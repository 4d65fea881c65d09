//! Puts services together by the settings, and runs them until they are told to stop.

use crate::{
    api,
    channel::{Channel, Smtp, Webhook},
    config::{Carrier, Config, Invalid, Notices, Stores},
    faults::Faults,
    http, postgres,
    risk::Rules,
    sqlite,
};
use axum::Router;
use malote::{
    Class, Runtime, StoreError, Transport, chain, edge, kafka,
    retry::Backoff,
    sqlite::{Embedded, embedded},
    topology::Flow,
};
use std::{error::Error, fmt, future::Future, io, path::Path, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The services by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Writes payments down and brings them to their end.
    Payment,
    /// Approves or rejects.
    Fraud,
    /// Moves money.
    Ledger,
    /// Tells the outside.
    Notification,
}

impl Name {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Payment, Self::Fraud, Self::Ledger, Self::Notification];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Fraud => "fraud",
            Self::Ledger => "ledger",
            Self::Notification => "notification",
        }
    }

    /// Where it serves HTTP unless told otherwise.
    pub fn default_http(self) -> &'static str {
        match self {
            Self::Payment => "127.0.0.1:8080",
            Self::Fraud => "127.0.0.1:8081",
            Self::Ledger => "127.0.0.1:8082",
            Self::Notification => "127.0.0.1:8083",
        }
    }
}

/// What services are given, whatever their store.
#[derive(Clone)]
pub struct Setup {
    /// What carries the events.
    pub transport: Arc<dyn Transport>,
    /// How long a relay's lease lasts without renewal.
    pub lease: Option<Duration>,
    /// How long requests may take, and their keys be taken.
    pub times: edge::Limits,
    /// How long a payment may be without an outcome.
    pub deadline: Duration,
    /// Where a service is told to fail, for demonstrations.
    pub faults: Faults,
    /// What may be asked for.
    pub limits: api::Limits,
    /// What fraud holds payments against.
    pub rules: Rules,
    /// Where notices go.
    pub channel: Channel,
    /// Redis in front of the idempotency keys.
    pub redis: Option<edge::Redis>,
    /// Ends what runs beside the services.
    pub stop: CancellationToken,
}

/// Why the program ends before its time.
#[derive(Debug)]
pub enum Fatal {
    /// A setting.
    Setting(Invalid),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(invalid) => invalid.fmt(f),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl Error for Fatal {}

impl From<Invalid> for Fatal {
    fn from(invalid: Invalid) -> Self {
        Self::Setting(invalid)
    }
}

/// Services that are ready to run.
pub struct App {
    runtime: Runtime,
    routes: Router,
    listener: TcpListener,
    stop: CancellationToken,
}

impl App {
    /// Opens everything that `services` need; waits for databases that are not there yet. Nothing
    /// when it was told to stop before that.
    pub async fn open(services: &[Name], config: &Config, stop: &CancellationToken) -> Result<Option<Self>, Fatal> {
        one_database_each(services, &config.store)?;
        let listener = listen(services, config).await?;
        make_folder("MALOTE_DATA", &config.data)?;
        let setup = setup(config, stop).await?;
        let (mut runtime, mut routes) = (Runtime::new(), Router::new());
        for name in services {
            let (mounted, own) = match stop.run_until_cancelled(mount(runtime, *name, &config.store, &setup)).await {
                Some(mounted) => mounted?,
                None => return Ok(None),
            };
            (runtime, routes) = (mounted, routes.merge(own));
        }
        Ok(Some(Self { runtime, routes, listener, stop: stop.clone() }))
    }

    /// Where it serves HTTP.
    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// What the services consume and emit.
    pub fn flow(&self) -> &Flow {
        self.runtime.flow()
    }

    /// Runs until it is told to stop.
    pub async fn run(self) -> Result<(), Fatal> {
        let routes = http::whole(self.routes, self.runtime.health());
        let serving = edge::serve(self.listener, routes, self.stop.clone());
        let (ran, served) = tokio::join!(self.runtime.run_until(self.stop.cancelled()), serving);
        ran.map_err(|error| Fatal::Other(error.to_string()))?;
        served.map_err(|error| Fatal::Other(format!("serving HTTP: {error}")))
    }
}

/// In one process the place must tell the services apart: a shared database would mix their outboxes.
fn one_database_each(services: &[Name], stores: &Stores) -> Result<(), Invalid> {
    let place = match stores {
        Stores::Sqlite(path) => path,
        Stores::Postgres(url) => url.expose(),
    };
    if services.len() == 1 || place.contains("{service}") {
        return Ok(());
    }
    let why = "it must contain {service} where several services run in one process: each has a database of its own";
    Err(Invalid::new("MALOTE_STORE", why))
}

async fn listen(services: &[Name], config: &Config) -> Result<TcpListener, Invalid> {
    let default = services.first().map_or("127.0.0.1:8080", |first| first.default_http());
    let address = config.http.as_deref().unwrap_or(default);
    let listening = TcpListener::bind(address).await;
    listening.map_err(|error| Invalid::new("MALOTE_HTTP", format!("cannot listen on {address}: {error}")))
}

fn make_folder(name: &'static str, folder: &Path) -> Result<(), Invalid> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| Invalid::new(name, format!("the folder {} cannot be made: {error}", folder.display())))
}

async fn setup(config: &Config, stop: &CancellationToken) -> Result<Setup, Fatal> {
    Ok(Setup {
        transport: transport(config).await?,
        lease: config.lease,
        times: times(config.request),
        deadline: config.deadline,
        faults: Faults::in_folder(&config.data),
        limits: config.limits,
        rules: config.rules.clone(),
        channel: channel(&config.notices)?,
        redis: match &config.redis {
            Some(url) => Some(edge::Redis::new(url.expose()).map_err(|e| Invalid::new("MALOTE_REDIS", e.to_string()))?),
            None => None,
        },
        stop: stop.clone(),
    })
}

fn times(request: Option<Duration>) -> edge::Limits {
    let default = edge::Limits::default();
    request.map_or(default, |work_time| edge::Limits { work_time, lease: 3 * work_time, ..default })
}

async fn transport(config: &Config) -> Result<Arc<dyn Transport>, Fatal> {
    let invalid = |why: String| Invalid::new("MALOTE_TRANSPORT", why);
    match &config.transport {
        Carrier::Embedded(path) => {
            let log = config.lease.into_iter().fold(Embedded::builder(), embedded::Builder::lease).open(path).await;
            Ok(Arc::new(log.map_err(|error| invalid(format!("{}: {}", path.display(), chain(&error))))?))
        }
        Carrier::Kafka { url, session, instance } => {
            let mut kafka = kafka::Builder::from_url(url.expose()).map_err(|error| invalid(error.to_string()))?;
            if let Some(session) = session {
                kafka = kafka.session(*session);
            }
            if let Some(instance) = instance {
                kafka = kafka.instance(instance);
            }
            Ok(Arc::new(kafka.connect().map_err(|error| invalid(error.to_string()))?))
        }
    }
}

fn channel(notices: &Notices) -> Result<Channel, Invalid> {
    match notices {
        Notices::Mailbox(folder) => {
            make_folder("MALOTE_DATA", folder)?;
            Ok(Channel::Mailbox(folder.clone()))
        }
        Notices::Smtp { host, port, from, to } => Ok(Channel::Smtp(Smtp::new(host, *port, from.clone(), to.clone()))),
        Notices::Webhook(url) => {
            let invalid = |_| Invalid::new("MALOTE_WEBHOOK", "it cannot be read as an address");
            let url = reqwest::Url::parse(url.expose()).map_err(invalid)?;
            let webhook = Webhook::new(url).map_err(|e| Invalid::new("MALOTE_WEBHOOK", e.without_url().to_string()))?;
            Ok(Channel::Webhook(webhook))
        }
    }
}

async fn mount(runtime: Runtime, name: Name, stores: &Stores, setup: &Setup) -> Result<(Runtime, Router), Fatal> {
    match stores {
        Stores::Sqlite(path) => {
            let path = path.replace("{service}", name.as_str());
            let db = patiently(name, || sqlite::open(&path, name)).await?;
            Ok(sqlite::mount(runtime, name, db, setup).map_err(unsound)?)
        }
        Stores::Postgres(url) => {
            let url = url.expose().replace("{service}", name.as_str());
            let db = patiently(name, || postgres::open(&url, name)).await?;
            Ok(postgres::mount(runtime, name, db, setup).map_err(unsound)?)
        }
    }
}

fn unsound(error: edge::Unsound) -> Invalid {
    Invalid::new("MALOTE_REQUEST_MS", error.to_string())
}

/// Opens a database that may not be there yet; gives up on what waiting will not mend.
async fn patiently<T, F>(name: Name, open: impl Fn() -> F) -> Result<T, Fatal>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(5) };
    for attempt in 1.. {
        match open().await {
            Ok(db) => return Ok(db),
            Err(error) if error.class == Class::Final => {
                return Err(Invalid::new("MALOTE_STORE", format!("{}: {}", name.as_str(), chain(&error))).into());
            }
            Err(error) => {
                let wait = backoff.wait(attempt, 1.0);
                tracing::warn!(
                    service = name.as_str(),
                    "the database is not there yet, next try in {wait:?}: {}",
                    chain(&error)
                );
                tokio::time::sleep(wait).await;
            }
        }
    }
    unreachable!("the attempts do not end by themselves")
}

/// The flow of all four services, as their handlers declare it. Made with databases in a folder that
/// goes away again: handlers belong to a service, and a service has a database.
pub async fn flow() -> Result<Flow, Fatal> {
    let folder = std::env::temp_dir().join(format!("payments-flow-{}", uuid::Uuid::now_v7()));
    let data = folder.to_string_lossy().into_owned();
    let config = Config::read(&|name| match name {
        "MALOTE_DATA" => Some(data.clone()),
        "MALOTE_HTTP" => Some("127.0.0.1:0".into()),
        _ => None,
    })?;
    let app = App::open(&Name::ALL, &config, &CancellationToken::new()).await;
    let flow = app.map(|app| app.map(|app| app.flow().clone()).unwrap_or_default());
    // what is left of it would only take room
    let _ = std::fs::remove_dir_all(&folder);
    flow
}
