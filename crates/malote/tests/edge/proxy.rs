//! A wire to PostgreSQL that breaks when it is told to.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// When the wire breaks, once; it is whole at 0.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Break {
    /// The next COMMIT is carried over, and its answer is not.
    BehindCommit = 1,
    /// The next COMMIT is not carried over.
    BeforeCommit = 2,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    /// While it is true nothing is carried over.
    pub stalled: watch::Sender<bool>,
    breaks: Arc<AtomicU8>,
}

impl Proxy {
    /// A wire to `server`, such as `127.0.0.1:5432`.
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self { address, stalled: watch::Sender::new(false), breaks: Arc::default() };
        let (stalled, breaks) = (proxy.stalled.clone(), proxy.breaks.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), stalled.subscribe(), breaks.clone()));
            }
        });
        proxy
    }

    pub fn breaks(&self, when: Break) {
        self.breaks.store(when as u8, Ordering::SeqCst);
    }
}

async fn carry(client: TcpStream, server: String, mut stalled: watch::Receiver<bool>, breaks: Arc<AtomicU8>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                if stalled.wait_for(|stalled| !stalled).await.is_err() {
                    return;
                }
                let message = &asked[..length];
                let commits = message.windows(6).any(|text| text == b"COMMIT");
                let breaking = if commits { breaks.swap(0, Ordering::SeqCst) } else { 0 };
                if breaking == Break::BeforeCommit as u8 || to_server.write_all(message).await.is_err() {
                    return;
                }
                if breaking == Break::BehindCommit as u8 {
                    // it has been done when the server says so, which nobody hears
                    let _ = from_server.read(&mut answered).await;
                    return;
                }
            }
            read = from_server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if to_client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
