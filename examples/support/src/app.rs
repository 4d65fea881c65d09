//! Puts services together by the settings, and runs them until they are told to stop.

use crate::{
    config::{Carrier, Common, Invalid, Stores},
    faults::Faults,
    http,
};
use axum::Router;
use futures::future::BoxFuture;
use malote::{
    Class, FullStore, IdempotencyStore, Runtime, Service, Store, StoreError, Transport, chain, edge, planted,
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

/// What every service is given, whatever it does and wherever its store is.
#[derive(Clone)]
pub struct Kit {
    /// What carries the events.
    pub transport: Arc<dyn Transport>,
    /// How long a relay's lease lasts without renewal.
    pub lease: Option<Duration>,
    /// How long requests may take, and their keys be taken.
    pub times: edge::Limits,
    /// Where a service is told to fail, for demonstrations.
    pub faults: Faults,
    /// Redis in front of the idempotency keys.
    #[cfg(feature = "servers")]
    pub redis: Option<edge::Redis>,
    /// Ends what runs beside the services.
    pub stop: CancellationToken,
}

/// One service of a program.
pub trait Part: Send + Sync {
    /// Its name: that of its database, too.
    fn name(&self) -> &'static str;
    /// Where it serves HTTP unless told otherwise.
    fn default_http(&self) -> &'static str;
    /// Opens its database, once; may be called again where the error passes.
    fn open<'a>(&'a self, stores: &'a Stores, place: &'a str, kit: &'a Kit)
    -> BoxFuture<'a, Result<Ready, StoreError>>;
}

impl Kit {
    /// Adds a service to a runtime, as this program's settings have it run.
    pub fn run<S: FullStore>(&self, runtime: Runtime, name: &str, service: Service<S>) -> Runtime {
        let faults = self.faults.of(name);
        let service = service.guard(move |_| faults.check());
        runtime.with(self.lease.into_iter().fold(service, Service::lease))
    }

    /// The layer that takes a request of a service once, and beside it what lets old keys go.
    pub fn once<S: IdempotencyStore>(&self, name: &'static str, db: S) -> Result<edge::Idempotency<S>, edge::Unsound> {
        let once = edge::Idempotency::new(db, name).limits(self.times)?;
        #[cfg(feature = "servers")]
        let once = self.redis.iter().cloned().fold(once, edge::Idempotency::redis);
        tokio::spawn(once.clone().janitor(self.stop.clone()));
        Ok(once)
    }
}

/// An error of a service's database, with what was being attempted and what it means.
pub fn failed<S: Store>(db: &S, doing: &str, error: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError { doing: doing.into(), class: db.classify(&error), source: error.into() }
}

/// The flow of services, as their handlers declare it. `parts` makes them by settings that it is given: their databases
/// are in a folder that goes away again, as handlers belong to a service, and a service has a database.
pub async fn flow(
    parts: impl AsyncFnOnce(&dyn Fn(&str) -> Option<String>) -> Result<(Vec<Box<dyn Part>>, Common), Fatal>,
) -> Result<Flow, Fatal> {
    let folder = std::env::temp_dir().join(format!("malote-flow-{}", uuid::Uuid::now_v7()));
    let data = folder.to_string_lossy().into_owned();
    let settings = |name: &str| match name {
        "MALOTE_DATA" => Some(data.clone()),
        "MALOTE_HTTP" => Some("127.0.0.1:0".into()),
        _ => None,
    };
    let flow = async {
        let (parts, config) = parts(&settings).await?;
        let app = App::open(&parts, &config, &CancellationToken::new()).await?;
        Ok(app.map(|app| app.flow().clone()).unwrap_or_default())
    };
    let flow = flow.await;
    // what is left of it would only take room
    let _ = std::fs::remove_dir_all(&folder);
    flow
}

/// Adds a service to a runtime; what it serves over HTTP comes back.
pub type Mount = Box<dyn FnOnce(Runtime) -> Result<(Runtime, Router), edge::Unsound> + Send>;

/// A service whose database is open.
pub struct Ready {
    /// What is left to do with it.
    pub mount: Mount,
    /// Gives its file back in good order, where it is one.
    pub close: Option<BoxFuture<'static, ()>>,
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
    /// Opens everything that `parts` need; waits for databases that are not there yet, and says over
    /// HTTP what it waits for. Nothing when it was told to stop before that.
    pub async fn open(
        parts: &[Box<dyn Part>],
        config: &Common,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, Fatal> {
        one_database_each(parts, &config.store)?;
        let (listener, meanwhile) = listen(parts, config).await?;
        make_folder("MALOTE_DATA", &config.data)?;
        let (waiting, shown) = watch::channel(String::new());
        let over = stop.child_token();
        let serving = tokio::spawn(MEANWHILE.serve(meanwhile, http::opening(shown), over.clone()));
        let _over_in_any_case = over.clone().drop_guard();
        let opened = Opened::all(parts, config, stop, &waiting).await?;
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
        parts: &[Box<dyn Part>],
        config: &Common,
        stop: &CancellationToken,
        waiting: &watch::Sender<String>,
    ) -> Result<Option<Self>, Fatal> {
        waiting.send_replace("log".into());
        let (kit, log) = kit(config, stop).await?;
        let mut opened = Self { runtime: Runtime::new(), routes: Router::new(), files: Vec::from_iter(log) };
        for part in parts {
            waiting.send_replace(format!("{} database", part.name()));
            opened = match stop.run_until_cancelled(opened.with(&**part, &config.store, &kit)).await {
                Some(more) => more?,
                None => return Ok(None),
            };
        }
        Ok(Some(opened))
    }

    async fn with(mut self, part: &dyn Part, stores: &Stores, kit: &Kit) -> Result<Self, Fatal> {
        let place = stores.place(part.name());
        let passes = |error: &StoreError| match stores {
            // a lock passes; a file that cannot be used now cannot be used later
            Stores::Folder(_) | Stores::Sqlite(_) => error.class == Class::Conflict,
            #[cfg(feature = "servers")]
            Stores::Postgres(_) => error.class != Class::Final,
        };
        let Ready { mount, close } = patiently(part.name(), stores, passes, || part.open(stores, &place, kit)).await?;
        self.files.extend(close);
        let unsound = |error: edge::Unsound| Invalid::new("MALOTE_REQUEST_MS", error.to_string());
        let (runtime, routes) = mount(self.runtime).map_err(unsound)?;
        Ok(Self { runtime, routes: self.routes.merge(routes), files: self.files })
    }
}

/// In one process the place must tell the services apart: a shared database would mix their outboxes.
fn one_database_each(parts: &[Box<dyn Part>], stores: &Stores) -> Result<(), Invalid> {
    if parts.len() == 1 || stores.tells_services_apart() {
        return Ok(());
    }
    let why = "it must contain {service} where several services run in one process: each has a database of its own";
    Err(Invalid::new("MALOTE_STORE", why))
}

/// The same socket twice: for while the services are opened, and for afterwards.
async fn listen(parts: &[Box<dyn Part>], config: &Common) -> Result<(TcpListener, TcpListener), Invalid> {
    let default = parts.first().map_or("127.0.0.1:8080", |first| first.default_http());
    let address = config.http.as_deref().unwrap_or(default);
    let twice = async {
        let socket = TcpListener::bind(address).await?.into_std()?;
        Ok::<_, io::Error>((TcpListener::from_std(socket.try_clone()?)?, TcpListener::from_std(socket)?))
    };
    twice.await.map_err(|error| Invalid::new("MALOTE_HTTP", format!("cannot listen on {address}: {error}")))
}

/// Makes a folder that a setting names.
pub fn make_folder(name: &'static str, folder: &Path) -> Result<(), Invalid> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| Invalid::new(name, format!("the folder {} cannot be made: {error}", folder.display())))
}

/// What the services are given, and what closes the log where it is a file.
async fn kit(config: &Common, stop: &CancellationToken) -> Result<(Kit, Option<BoxFuture<'static, ()>>), Fatal> {
    let (transport, closing) = transport(config).await?;
    let kit = Kit {
        transport,
        lease: config.lease,
        times: times(config.request),
        faults: Faults::in_folder(&config.data),
        #[cfg(feature = "servers")]
        redis: match &config.redis {
            Some(url) => Some(edge::Redis::new(url.expose()).map_err(|e| Invalid::new("MALOTE_REDIS", e.to_string()))?),
            None => None,
        },
        stop: stop.clone(),
    };
    Ok((kit, closing))
}

fn times(request: Option<Duration>) -> edge::Limits {
    let default = edge::Limits::default();
    request.map_or(default, |work_time| edge::Limits { work_time, lease: 3 * work_time, ..default })
}

type Carried = (Arc<dyn Transport>, Option<BoxFuture<'static, ()>>);

async fn transport(config: &Common) -> Result<Carried, Fatal> {
    match &config.transport {
        Carrier::Embedded { path, chosen_by } => {
            let log = config.lease.into_iter().fold(Embedded::builder(), embedded::Builder::lease).open(path).await;
            let log = log.map_err(|error| unusable(chosen_by, path, chain(&error)))?;
            Ok((Arc::new(log.clone()), Some(Box::pin(log.close()))))
        }
        #[cfg(feature = "servers")]
        Carrier::Kafka { url, session, instance } => {
            let invalid = |why: String| Invalid::new("MALOTE_TRANSPORT", why);
            let mut kafka =
                malote::kafka::Builder::from_url(url.expose()).map_err(|error| invalid(error.to_string()))?;
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

/// Opens a database that may not be there yet; gives up on what waiting will not mend.
async fn patiently<T, F>(
    service: &str,
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
                tracing::warn!(service, "the database is not there yet, next try in {wait:?}: {}", chain(&error));
                tokio::time::sleep(wait).await;
            }
            Err(error) => {
                return Err(match stores {
                    // of a URL, which may hold a secret, no more is said than the store says
                    #[cfg(feature = "servers")]
                    Stores::Postgres(_) => Invalid::new(stores.chosen_by(), format!("{service}: {}", chain(&error))),
                    _ => unusable(stores.chosen_by(), path_of(&stores.place(service)), chain(&error)),
                }
                .into());
            }
        }
    }
    unreachable!("the attempts do not end by themselves")
}
