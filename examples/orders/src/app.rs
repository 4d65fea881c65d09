//! The services as parts of a program.

use crate::{config::Config, provider::Provider, saga::Waits, sqlite};
use ::provider::{Book, router, serve};
use futures::future::BoxFuture;
use malote::{StoreError, chain, topology::Flow};
use std::time::Duration;
use support::{
    app::{Fatal, Kit, Part, Ready, make_folder},
    config::{Invalid, Stores},
    mailbox::Mailbox,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The services by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Takes orders, and leads each to its end.
    Order,
    /// Sets stock aside.
    Inventory,
    /// Has money held, taken and given back.
    Billing,
    /// Has it delivered.
    Shipping,
}

impl Name {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Order, Self::Inventory, Self::Billing, Self::Shipping];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Inventory => "inventory",
            Self::Billing => "billing",
            Self::Shipping => "shipping",
        }
    }

    /// Where it serves HTTP unless told otherwise.
    fn default_http(self) -> &'static str {
        match self {
            Self::Order => "127.0.0.1:8084",
            Self::Inventory => "127.0.0.1:8085",
            Self::Billing => "127.0.0.1:8086",
            Self::Shipping => "127.0.0.1:8087",
        }
    }
}

/// What the services are given beside what all services are given.
#[derive(Clone)]
pub struct Setup {
    /// The way to the payment provider.
    pub provider: Provider,
    /// How long a reservation of stock lasts.
    pub reservation: Duration,
    /// How long the saga waits for its services.
    pub waits: Waits,
    /// Where notices to customers are put.
    pub mailbox: Mailbox,
}

struct Service(Name, Setup);

impl Part for Service {
    fn name(&self) -> &'static str {
        self.0.as_str()
    }

    fn default_http(&self) -> &'static str {
        self.0.default_http()
    }

    fn open<'a>(
        &'a self,
        stores: &'a Stores,
        place: &'a str,
        kit: &'a Kit,
    ) -> BoxFuture<'a, Result<Ready, StoreError>> {
        let (name, kit, setup) = (self.0, kit.clone(), self.1.clone());
        Box::pin(async move {
            Ok(match stores {
                Stores::Folder(_) | Stores::Sqlite(_) => {
                    let db = sqlite::open(place, name).await?;
                    let file = db.clone();
                    Ready {
                        mount: Box::new(move |runtime| sqlite::mount(runtime, name, db, &kit, &setup)),
                        close: Some(Box::pin(async move { file.close().await })),
                    }
                }
                #[cfg(feature = "servers")]
                Stores::Postgres(_) => {
                    let db = crate::postgres::open(place, name).await?;
                    Ready {
                        mount: Box::new(move |runtime| crate::postgres::mount(runtime, name, db, &kit, &setup)),
                        close: None,
                    }
                }
            })
        })
    }
}

/// The services as parts, and where the provider is. Where no provider is named, and billing needs one, it
/// runs in this process until `stop`.
pub async fn parts(
    names: &[Name],
    config: &Config,
    stop: &CancellationToken,
) -> Result<(Vec<Box<dyn Part>>, String), Fatal> {
    let url = match &config.provider {
        Some(url) => url.clone(),
        None if names.contains(&Name::Billing) => provider_inside(config, stop).await?,
        None => "http://127.0.0.1:8090".into(), // of no use to the others
    };
    let invalid = |why: String| Invalid::new("MALOTE_PROVIDER", why);
    let address = reqwest::Url::parse(&url).map_err(|error| invalid(error.to_string()))?;
    let provider = Provider::new(address, config.patience).map_err(|error| invalid(error.without_url().to_string()))?;
    let setup = Setup {
        provider,
        reservation: config.reservation,
        waits: config.waits,
        mailbox: Mailbox::new(config.mailbox(), "orders.malote"),
    };
    Ok((names.iter().map(|name| Box::new(Service(*name, setup.clone())) as Box<dyn Part>).collect(), url))
}

/// A provider for demonstrations: real HTTP, but in this process. Its address.
async fn provider_inside(config: &Config, stop: &CancellationToken) -> Result<String, Fatal> {
    let data = &config.common.data;
    make_folder("MALOTE_DATA", data)?;
    let failed = |error: &dyn std::error::Error| Fatal::Other(format!("the provider cannot start: {error}"));
    let book = Book::open(&data.join("provider.db")).await.map_err(|error| failed(&error))?;
    let listener = TcpListener::bind(&config.provider_http).await;
    let listener = listener.map_err(|error| {
        let address = &config.provider_http;
        Invalid::new("MALOTE_PROVIDER_HTTP", format!("cannot listen on {address}: {error}"))
    })?;
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let routes = router(::provider::Provider::new(book.clone()));
        if let Err(error) = serve(listener, routes, stop).await {
            tracing::error!("the provider has ended: {}", chain(&error));
        }
        book.close().await;
    });
    Ok(format!("http://{address}"))
}

/// The flow of all four services, as their handlers and the saga declare it.
pub async fn flow() -> Result<Flow, Fatal> {
    support::app::flow(async |settings| {
        // nobody is asked there
        let provider = |name: &str| (name == "MALOTE_PROVIDER").then(|| "http://127.0.0.1:9".into());
        let config = Config::read(&|name| settings(name).or_else(|| provider(name)))?;
        let (parts, _) = parts(&Name::ALL, &config, &CancellationToken::new()).await?;
        Ok((parts, config.common))
    })
    .await
}

/// What to try, for a person at a terminal.
pub fn howto(address: &str) -> String {
    format!(
        "An order that is confirmed:\n\n  \
         curl -X POST http://{address}/orders -H 'Content-Type: application/json' \\\n    \
         -H 'Idempotency-Key: 11111111-1111-1111-1111-111111111111' \\\n    \
         -d '{{\"items\": [{{\"sku\": \"book\", \"quantity\": 1}}], \"card\": \"tok_ok\", \"address\": \"Rua das Flores 1\"}}'\n\n\
         Other cards: tok_declined, tok_timeout (done, but the answer is lost), tok_slow, tok_refund_fails.\n\
         Items: book, pen, lamp, and three globes. Another key for another order.\n\n\
         How it stands, with the id from the answer; and to call it off in time:\n\n  \
         curl http://{address}/orders/ID\n  curl -X POST http://{address}/orders/ID/cancel"
    )
}
