//! A TCP proxy that delays what passes, and breaks what a test wants broken.
//!
//! What goes wrong between a client and its server happens while bytes are on their way, which takes
//! no time on loopback. The proxy makes that time long, so that a test can act within it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

/// A proxy on a free port of 127.0.0.1; gone with its connections when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    server: Arc<Mutex<SocketAddr>>,
    delay: Arc<AtomicU64>,
    links: Arc<Mutex<Vec<AbortHandle>>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of `server`; bytes arrive `delay` after they were sent, in either direction.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn before(server: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (delay, links) = (Arc::new(AtomicU64::new(micros(delay))), Arc::new(Mutex::new(Vec::new())));
        let server = Arc::new(Mutex::new(server));
        let accepting = tokio::spawn(accept(listener, server.clone(), delay.clone(), links.clone()));
        Ok(Self { port, server, delay, links, accepting })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the delay, for what is sent from here on.
    pub fn set_delay(&self, delay: Duration) {
        self.delay.store(micros(delay), Ordering::Relaxed);
    }

    /// Leads new connections to another server; those that are there stay where they are.
    pub fn switch(&self, server: SocketAddr) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Cuts all connections; new ones are taken.
    pub fn cut(&self) {
        for link in self.links.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            link.abort();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

fn micros(delay: Duration) -> u64 {
    delay.as_micros().try_into().unwrap_or(u64::MAX)
}

async fn accept(
    listener: TcpListener,
    server: Arc<Mutex<SocketAddr>>,
    delay: Arc<AtomicU64>,
    links: Arc<Mutex<Vec<AbortHandle>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let delay = delay.clone();
        let server = *server.lock().unwrap_or_else(PoisonError::into_inner);
        let link = tokio::spawn(async move {
            // An error ends this connection, as it would without the proxy.
            let _ = link(client, server, delay).await;
        });
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| !link.is_finished());
        links.push(link.abort_handle());
    }
}

async fn link(client: TcpStream, server: SocketAddr, delay: Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(pass(from_client, to_server, delay.clone()), pass(from_server, to_client, delay)).map(drop)
}

/// Passes bytes on, late, and without waiting for the last ones before it takes the next.
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Arc<AtomicU64>,
) -> io::Result<()> {
    let (send, mut sent) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let take = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer).await?;
            let due = Instant::now() + Duration::from_micros(delay.load(Ordering::Relaxed));
            if send.send((due, buffer[..count].to_vec())).is_err() || count == 0 {
                return io::Result::Ok(());
            }
        }
    };
    let give = async move {
        while let Some((due, bytes)) = sent.recv().await {
            sleep_until(due).await;
            if bytes.is_empty() {
                break;
            }
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(take, give).map(drop)
}
