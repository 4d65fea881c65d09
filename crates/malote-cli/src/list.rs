//! The commands that list rows.

use crate::{
    End, Unusable,
    chosen::{Chosen, Failing},
    out::{Listed, Of, list, say},
    place::{Looked, Place},
    store::Store,
};
use malote::{StoreError, inspect::Filter};

/// How a listing is printed.
#[derive(clap::Args)]
pub struct Listing {
    /// At most so many rows of each service
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,
    /// For scripts: an array of objects, one for each row, with `service`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

impl Listing {
    /// Asks every service for its rows and prints them.
    pub async fn run<T: Listed>(
        &self,
        ask: impl AsyncFn(&Store, u32) -> Result<Vec<T>, StoreError>,
    ) -> Result<End, Unusable> {
        // one more shows whether there are more
        let looked = self.place.look(async |store: &Store| ask(store, self.most + 1).await).await?;
        let Looked { answers, several, failed } = looked;
        // where nobody answered, nothing can be said to be empty
        let answered = !answers.is_empty();
        let mut rows = Vec::new();
        for Of { service, row: mut of_one } in answers {
            if of_one.len() > self.most as usize {
                of_one.truncate(self.most as usize);
                say(&format!("malote: {service} has more than these {}; --most N shows them", self.most));
            }
            rows.extend(of_one.into_iter().map(|row| Of { service: service.clone(), row }));
        }
        // with one of several away it is still to be seen whose rows these are
        if self.json || answered {
            list(&rows, several, self.json)?;
        }
        Ok(if failed.is_empty() { End::Fine } else { End::Unusable })
    }
}

/// List rows of the outbox: what a service says, published or not
#[derive(clap::Args)]
pub struct Outbox {
    #[command(flatten)]
    chosen: Chosen,
    /// Only those that are not published yet
    #[arg(long)]
    pending: bool,
    #[command(flatten)]
    listing: Listing,
}

impl Outbox {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        let filter = Filter { pending: self.pending, ..self.chosen.filter() };
        self.listing.run(async |store: &Store, most| store.inspect().outbox(&filter, most).await).await
    }
}

/// List messages that wait for another attempt, and those that wait behind them
#[derive(clap::Args)]
pub struct Parked {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    failing: Failing,
    #[command(flatten)]
    listing: Listing,
}

impl Parked {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        let filter = self.failing.of_parked(self.chosen.filter())?;
        self.listing.run(async |store: &Store, most| store.inspect().parked(&filter, most).await).await
    }
}

/// List who moves the outbox, and how far it has come
#[derive(clap::Args)]
pub struct Relay {
    #[command(flatten)]
    listing: Listing,
}

impl Relay {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        self.listing.run(async |store: &Store, _| store.inspect().status().await.map(|status| status.relays)).await
    }
}

/// List envelopes and deadlines that are not due yet
#[derive(clap::Args)]
pub struct Scheduled {
    #[command(flatten)]
    listing: Listing,
}

impl Scheduled {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        self.listing.run(async |store: &Store, most| store.inspect().scheduled(most).await).await
    }
}

/// List what people did, and why
#[derive(clap::Args)]
pub struct Audit {
    #[command(flatten)]
    listing: Listing,
}

impl Audit {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        self.listing.run(async |store: &Store, most| store.inspect().audit(most).await).await
    }
}
