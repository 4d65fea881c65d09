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
use futures::future::BoxFuture;
use malote::{
    Class, Runtime, StoreError, Transport, chain, edge, kafka, planted,
    retry::Backoff,
    sqlite::{Embedded, embedded},
    topology::Flow,
};
use std::{error::Error, fmt, future::Future, io, path::Path, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

/// How long closing files may take at the end.
const CLOSING: Duration = Duration::from_secs(2);

/// Serves while the services are opened; its clients ask short questions and get short answers.
const MEANWHILE: edge::Server = edge::Server {
    header_time: Duration::from_secs(10),
    body_time: Duration::from_secs(30),
    write_time: Duration::from_secs(30),
    grace: Duration::from_millis(500),
    connections: 64,
};

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
    opened: Opened,
    listener: TcpListener,
    stop: CancellationToken,
}

/// What was opened of the services.
struct Opened {
    runtime: Runtime,
    routes: Router,
    /// What gives its files back in good order at the end.
    files: Vec<BoxFuture<'static, ()>>,
}

impl App {
    /// Opens everything that `services` need; waits for databases that are not there yet, and says over
    /// HTTP what it waits for. Nothing when it was told to stop before that.
    pub async fn open(services: &[Name], config: &Config, stop: &CancellationToken) -> Result<Option<Self>, Fatal> {
        one_database_each(services, &config.store)?;
        let (listener, meanwhile) = listen(services, config).await?;
        make_folder("MALOTE_DATA", &config.data)?;
        let (waiting, shown) = watch::channel(String::new());
        let over = stop.child_token();
        let serving = tokio::spawn(MEANWHILE.serve(meanwhile, http::opening(shown), over.clone()));
        let _over_in_any_case = over.clone().drop_guard();
        let opened = Opened::all(services, config, stop, &waiting).await?;
        over.cancel();
        // whoever is being answered; an error of that server is one of the next one, too
        let _ = serving.await;
        Ok(opened.map(|opened| Self { opened, listener, stop: stop.clone() }))
    }

    /// Where it serves HTTP.
    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// What the services consume and emit.
    pub fn flow(&self) -> &Flow {
        self.opened.runtime.flow()
    }

    /// Runs until it is told to stop.
    pub async fn run(self) -> Result<(), Fatal> {
        let Opened { runtime, routes, files } = self.opened;
        let routes = http::whole(routes, runtime.health());
        let serving = edge::serve(self.listener, routes, self.stop.clone());
        let (ran, served) = tokio::join!(runtime.run_until(self.stop.cancelled()), serving);
        // a file that somebody still holds is no reason to hang: the next start finds it as a crash leaves it
        let closed = tokio::time::timeout(CLOSING, futures::future::join_all(files)).await;
        if closed.is_err() {
            tracing::warn!("not every file could be closed within {CLOSING:?}; nothing is lost by that");
        }
        ran.map_err(|error| Fatal::Other(error.to_string()))?;
        served.map_err(|error| Fatal::Other(format!("serving HTTP: {error}")))
    }
}

impl Opened {
    async fn all(
        services: &[Name],
        config: &Config,
        stop: &CancellationToken,
        waiting: &watch::Sender<String>,
    ) -> Result<Option<Self>, Fatal> {
        waiting.send_replace("log".into());
        let (setup, log) = setup(config, stop).await?;
        let mut opened = Self { runtime: Runtime::new(), routes: Router::new(), files: Vec::from_iter(log) };
        for name in services {
            waiting.send_replace(format!("{} database", name.as_str()));
            opened = match stop.run_until_cancelled(opened.with(*name, &config.store, &setup)).await {
                Some(more) => more?,
                None => return Ok(None),
            };
        }
        Ok(Some(opened))
    }

    async fn with(mut self, name: Name, stores: &Stores, setup: &Setup) -> Result<Self, Fatal> {
        let place = stores.place(name.as_str());
        let (runtime, routes) = match stores {
            Stores::Folder(_) | Stores::Sqlite(_) => {
                // a lock passes; a file that cannot be used now cannot be used later
                let passes = |error: &StoreError| error.class == Class::Conflict;
                let db = patiently(name, stores, passes, || sqlite::open(&place, name)).await?;
                let file = db.clone();
                self.files.push(Box::pin(async move { file.close().await }));
                sqlite::mount(self.runtime, name, db, setup).map_err(unsound)?
            }
            Stores::Postgres(_) => {
                let passes = |error: &StoreError| error.class != Class::Final;
                let db = patiently(name, stores, passes, || postgres::open(&place, name)).await?;
                postgres::mount(self.runtime, name, db, setup).map_err(unsound)?
            }
        };
        Ok(Self { runtime, routes: self.routes.merge(routes), files: self.files })
    }
}

/// In one process the place must tell the services apart: a shared database would mix their outboxes.
fn one_database_each(services: &[Name], stores: &Stores) -> Result<(), Invalid> {
    if services.len() == 1 || stores.tells_services_apart() {
        return Ok(());
    }
    let why = "it must contain {service} where several services run in one process: each has a database of its own";
    Err(Invalid::new("MALOTE_STORE", why))
}

/// The same socket twice: for while the services are opened, and for afterwards.
async fn listen(services: &[Name], config: &Config) -> Result<(TcpListener, TcpListener), Invalid> {
    let default = services.first().map_or("127.0.0.1:8080", |first| first.default_http());
    let address = config.http.as_deref().unwrap_or(default);
    let twice = async {
        let socket = TcpListener::bind(address).await?.into_std()?;
        Ok::<_, io::Error>((TcpListener::from_std(socket.try_clone()?)?, TcpListener::from_std(socket)?))
    };
    twice.await.map_err(|error| Invalid::new("MALOTE_HTTP", format!("cannot listen on {address}: {error}")))
}

fn make_folder(name: &'static str, folder: &Path) -> Result<(), Invalid> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| Invalid::new(name, format!("the folder {} cannot be made: {error}", folder.display())))
}

/// What the services are given, and what closes the log where it is a file.
async fn setup(config: &Config, stop: &CancellationToken) -> Result<(Setup, Option<BoxFuture<'static, ()>>), Fatal> {
    let (transport, closing) = transport(config).await?;
    let setup = Setup {
        transport,
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
    };
    Ok((setup, closing))
}

fn times(request: Option<Duration>) -> edge::Limits {
    let default = edge::Limits::default();
    request.map_or(default, |work_time| edge::Limits { work_time, lease: 3 * work_time, ..default })
}

type Carried = (Arc<dyn Transport>, Option<BoxFuture<'static, ()>>);

async fn transport(config: &Config) -> Result<Carried, Fatal> {
    match &config.transport {
        Carrier::Embedded { path, chosen_by } => {
            let log = config.lease.into_iter().fold(Embedded::builder(), embedded::Builder::lease).open(path).await;
            let log = log.map_err(|error| unusable(chosen_by, path, chain(&error)))?;
            Ok((Arc::new(log.clone()), Some(Box::pin(log.close()))))
        }
        Carrier::Kafka { url, session, instance } => {
            let invalid = |why: String| Invalid::new("MALOTE_TRANSPORT", why);
            let mut kafka = kafka::Builder::from_url(url.expose()).map_err(|error| invalid(error.to_string()))?;
            if let Some(session) = session {
                kafka = kafka.session(*session);
            }
            if let Some(instance) = instance {
                kafka = kafka.instance(instance);
            }
            Ok((Arc::new(kafka.connect().map_err(|error| invalid(error.to_string()))?), None))
        }
    }
}

/// A file that cannot be used. SQLite says of most of them only that it is "unable to open" them.
fn unusable(chosen_by: &'static str, file: &Path, why: String) -> Invalid {
    let hint = match file.parent().map(|folder| folder.metadata()) {
        _ if file.is_dir() => ": it is a folder, and a file is expected",
        Some(Err(_)) if file.parent() != Some(Path::new("")) => ": its folder is not there",
        _ => ": can this user write to it, and to its folder?",
    };
    Invalid::new(chosen_by, format!("{} cannot be used{hint} ({why})", file.display()))
}

/// The path in a path or a `sqlite:` URL.
fn path_of(place: &str) -> &Path {
    let path = place.strip_prefix("sqlite:").map_or(place, |url| url.strip_prefix("//").unwrap_or(url));
    Path::new(path.split('?').next().unwrap_or(path))
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

fn unsound(error: edge::Unsound) -> Invalid {
    Invalid::new("MALOTE_REQUEST_MS", error.to_string())
}

/// Opens a database that may not be there yet; gives up on what waiting will not mend.
async fn patiently<T, F>(
    name: Name,
    stores: &Stores,
    passes: impl Fn(&StoreError) -> bool,
    open: impl Fn() -> F,
) -> Result<T, Fatal>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(5) };
    for attempt in 1.. {
        match open().await {
            Ok(db) => return Ok(db),
            Err(error) if passes(&error) || planted::is("payments-wait-for-ever") => {
                let wait = backoff.wait(attempt, 1.0);
                tracing::warn!(
                    service = name.as_str(),
                    "the database is not there yet, next try in {wait:?}: {}",
                    chain(&error)
                );
                tokio::time::sleep(wait).await;
            }
            Err(error) => {
                return Err(match stores {
                    // of a URL, which may hold a secret, no more is said than the store says
                    Stores::Postgres(_) => {
                        Invalid::new(stores.chosen_by(), format!("{}: {}", name.as_str(), chain(&error)))
                    }
                    _ => unusable(stores.chosen_by(), path_of(&stores.place(name.as_str())), chain(&error)),
                }
                .into());
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
