//! Whose database is meant.
//!
//! ```text
//!   --store, MALOTE_STORE ─▶ one database, or one for each service by {service}
//!   MALOTE_DATA ───────────▶ a demonstration: the SQLite files in it
//!   malote.toml ───────────▶ [services.NAME] store = "…"
//!   none of these ─────────▶ a demonstration in ./data
//! ```

use crate::{
    Unusable, demo, map,
    out::{Of, say},
    settings,
    store::{Store, Url},
};
use futures::future::join_all;
use malote::{StoreError, chain};
use std::time::Duration;

/// The longest that a question may take; acts may take longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Stands for the service's name in the URL of a store.
const NAME: &str = "{service}";

/// Whose database.
#[derive(clap::Args)]
#[command(next_help_heading = "Whose database")]
pub struct Place {
    /// A path, sqlite:PATH, or postgres://user:password@host:port/database
    ///
    /// {service} in it stands for the service's name: that of --service, or each of those in the flow documents that
    /// malote.toml names. Without it: the demonstration that MALOTE_DATA names; else the services in malote.toml, in
    /// this folder or one above; else the demonstration in ./data. Where there are several services, all are meant.
    #[arg(long, value_name = "URL", env = "MALOTE_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The schema of malote's tables on PostgreSQL, where it is not `malote`
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
}

/// A service whose database is open.
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its database.
    pub store: Store,
}

/// What several services answered.
pub struct Looked<T> {
    /// Each answer with its service.
    pub answers: Vec<Of<T>>,
    /// Whether more than one service was asked.
    pub several: bool,
    /// The services that gave none, and why.
    pub failed: Vec<Of<String>>,
}

impl Place {
    /// Asks every service that is meant, all at once; says which ones cannot be asked.
    pub async fn look<T>(&self, ask: impl AsyncFn(&Store) -> Result<T, StoreError>) -> Result<Looked<T>, Unusable> {
        let looked = self.ask_each(async |url: &Url| asked(url, &ask).await).await?;
        for Of { service, row } in &looked.failed {
            say(&format!("malote: {service}: {row}"));
        }
        Ok(looked)
    }

    /// As [`Place::look`], for those who ask tables of any version and say themselves what failed.
    pub async fn look_at_any<T>(
        &self,
        ask: impl AsyncFn(&Store) -> Result<T, StoreError>,
    ) -> Result<Looked<T>, Unusable> {
        self.ask_each(async |url: &Url| answered(url.open_any().await?, &ask).await).await
    }

    async fn ask_each<T>(&self, ask: impl AsyncFn(&Url) -> Result<T, String>) -> Result<Looked<T>, Unusable> {
        let services = self.services().await?;
        let several = services.len() > 1;
        let answers = join_all(services.into_iter().map(async |(name, url)| {
            let answer = tokio::time::timeout(PATIENCE, ask(&url)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
            (name, answer)
        }));
        let mut looked = Looked { answers: Vec::new(), several, failed: Vec::new() };
        for (service, answer) in answers.await {
            match answer {
                Ok(row) => looked.answers.push(Of { service, row }),
                Err(row) => looked.failed.push(Of { service, row }),
            }
        }
        Ok(looked)
    }

    /// Opens every service that is meant; one that cannot be opened stops it, so that nothing is done by halves.
    pub async fn open(&self) -> Result<Vec<Service>, Unusable> {
        let services = self.services().await?.into_iter().map(async |(name, url)| match url.open().await {
            Ok((store, newer)) => {
                if let Some(newer) = newer {
                    say(&format!("malote: {name}: {newer}"));
                }
                Ok(Service { name, store })
            }
            Err(why) => Err(Unusable::new(name, why)),
        });
        join_all(services).await.into_iter().collect()
    }

    /// The services that are meant, by name.
    pub async fn services(&self) -> Result<Vec<(String, Url)>, Unusable> {
        let mut found = self.found().await?;
        let Some(name) = &self.service else { return Ok(found) };
        let names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
        found.retain(|(found, _)| found == name);
        match found.is_empty() {
            true if self.store.is_some() => Err(Unusable::new(
                "--service",
                format!(
                    "--store (or MALOTE_STORE) names one database, that of {:?}, not of {name:?}: leave --service out, or \
                     write {NAME} where the name stands in the URL",
                    names.join(", ")
                ),
            )),
            true => {
                Err(Unusable::new("--service", format!("there is no service {name:?} here, only {}", names.join(", "))))
            }
            false => Ok(found),
        }
    }

    async fn found(&self) -> Result<Vec<(String, Url)>, Unusable> {
        if let Some(store) = self.store.as_deref().filter(|store| !store.is_empty()) {
            return self.named(store);
        }
        if let Some(folder) = demo::told() {
            return demo::services(&folder).await;
        }
        let services = settings::services()?;
        if services.is_empty() {
            return demo::services(&demo::usual()).await;
        }
        let services = services.into_iter().map(|(name, settings::Service { store, schema })| {
            let schema = self.schema.as_deref().or(schema.as_deref());
            Url::new(&store, schema).map(|url| (name, url))
        });
        services.collect()
    }

    /// The services of `--store`.
    fn named(&self, store: &str) -> Result<Vec<(String, Url)>, Unusable> {
        let url = |store: &str| Url::new(store, self.schema.as_deref());
        if !store.contains(NAME) {
            let url = url(store)?;
            // `--service` picks one of those there are, here as everywhere
            return Ok(vec![(url.name(), url)]);
        }
        let names = match &self.service {
            Some(name) => vec![name.clone()],
            None => map::names(&settings::flows()?)?,
        };
        if names.is_empty() {
            let why = format!("{NAME} stands for a name, and neither --service nor a flow document gives one");
            return Err(Unusable::new("--store", why));
        }
        names.into_iter().map(|name| Ok((name.clone(), url(&store.replace(NAME, &name))?))).collect()
    }
}

async fn asked<T>(url: &Url, ask: &impl AsyncFn(&Store) -> Result<T, StoreError>) -> Result<T, String> {
    let (store, newer) = url.open().await?;
    let answer = answered(store, ask).await;
    answer.map_err(|why| newer.map_or(why.clone(), |newer| format!("{why}; {newer}")))
}

async fn answered<T>(store: Store, ask: &impl AsyncFn(&Store) -> Result<T, StoreError>) -> Result<T, String> {
    let answer = ask(&store).await;
    store.close().await;
    answer.map_err(|error| chain(&error))
}
