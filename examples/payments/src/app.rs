//! The services as parts of a program.

use crate::{
    api,
    channel::{Channel, Smtp, Webhook},
    config::{Config, Notices},
    risk::Rules,
    sqlite,
};
use futures::future::BoxFuture;
use malote::{StoreError, topology::Flow};
use std::time::Duration;
use support::{
    app::{Fatal, Kit, Part, Ready},
    config::{Invalid, Stores},
    mailbox::Mailbox,
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

/// What the services are given beside what all services are given.
#[derive(Clone)]
pub struct Setup {
    /// How long a payment may be without an outcome.
    pub deadline: Duration,
    /// What may be asked for.
    pub limits: api::Limits,
    /// What fraud holds payments against.
    pub rules: Rules,
    /// Where notices go.
    pub channel: Channel,
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

/// The services as parts.
pub fn parts(names: &[Name], config: &Config) -> Result<Vec<Box<dyn Part>>, Invalid> {
    let setup = Setup {
        deadline: config.deadline,
        limits: config.limits,
        rules: config.rules.clone(),
        channel: channel(&config.notices)?,
    };
    Ok(names.iter().map(|name| Box::new(Service(*name, setup.clone())) as Box<dyn Part>).collect())
}

fn channel(notices: &Notices) -> Result<Channel, Invalid> {
    match notices {
        Notices::Mailbox(folder) => Ok(Channel::Mailbox(Mailbox::new(folder.clone(), "payments.malote"))),
        Notices::Smtp { host, port, from, to } => Ok(Channel::Smtp(Smtp::new(host, *port, from.clone(), to.clone()))),
        Notices::Webhook(url) => {
            let invalid = |_| Invalid::new("MALOTE_WEBHOOK", "it cannot be read as an address");
            let url = reqwest::Url::parse(url.expose()).map_err(invalid)?;
            let webhook = Webhook::new(url).map_err(|e| Invalid::new("MALOTE_WEBHOOK", e.without_url().to_string()))?;
            Ok(Channel::Webhook(webhook))
        }
    }
}

/// The flow of all four services, as their handlers declare it.
pub async fn flow() -> Result<Flow, Fatal> {
    support::app::flow(async |settings| {
        let config = Config::read(settings)?;
        Ok((parts(&Name::ALL, &config)?, config.common))
    })
    .await
}

/// What to try, for a person at a terminal.
pub fn howto(address: &str, percent: u8) -> String {
    let [first, second] = curls(address);
    format!(
        "A payment that fraud approves about {percent} % of the time:\n\n{first}\n\n\
         One that carol cannot pay: approved or not, it comes to nothing:\n\n{second}\n\n\
         The same key again gets the same answer; change it for another payment.\n\n\
         How it ended, with the id from the answer:\n\n  curl http://{address}/payment/ID"
    )
}

fn curls(address: &str) -> [String; 2] {
    let first = format!(
        "  curl -X POST http://{address}/payment \\\n    -H 'Content-Type: application/json' \\\n    \
         -H 'x-idempotency-key: 11111111-1111-1111-1111-111111111111' \\\n    \
         -d '{{\"amount\": 1500, \"from\": \"alice\", \"to\": \"bob\"}}'"
    );
    let second = format!(
        "  curl -X POST http://{address}/payment \\\n    \
         -H 'x-idempotency-key: 33333333-3333-3333-3333-333333333333' \\\n    \
         -d '{{\"amount\": 999999999, \"from\": \"carol\", \"to\": \"bob\"}}'"
    );
    [first, second]
}
