//! `malote saga describe`: a definition, as the service's processes told it.

use super::super::{
    End, Unusable,
    out::{self, Of, plain},
    place::Place,
    store::Store,
};
use malote::saga::Outline;
use std::collections::BTreeSet;

/// Show the steps of a definition: what is asked, what undoes it, what happens when nobody answers
#[derive(clap::Args)]
pub struct Args {
    /// Its name
    definition: String,
    /// In this version [the newest]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// For scripts: an array of objects with `service`, `saga`, `version` and `steps`
    #[arg(long, conflicts_with = "mermaid")]
    json: bool,
    /// As a Mermaid flowchart
    #[arg(long)]
    mermaid: bool,
    #[command(flatten)]
    place: Place,
}

impl Args {
    /// Runs the command.
    pub async fn run(&self) -> Result<End, Unusable> {
        let looked = self.place.look(async |store: &Store| store.inspect().saga_definitions().await).await?;
        let all: Vec<Of<Outline>> = looked
            .answers
            .into_iter()
            .flat_map(|Of { service, row }| row.into_iter().map(move |row| Of { service: service.clone(), row }))
            .collect();
        // of what could not be asked nobody can say that it is not there
        if all.is_empty() && !looked.failed.is_empty() {
            return Ok(End::Unusable);
        }
        let chosen = self.chosen(&all)?;
        if self.json {
            out::json(&chosen)?;
        } else {
            let shown = |outline: &Outline| if self.mermaid { outline.mermaid() } else { outline.table() };
            let texts =
                chosen.iter().map(|of| shown(&of.row).lines().map(|line| plain(line) + "\n").collect::<String>());
            out::print(&texts.collect::<Vec<_>>().join("\n"))?;
        }
        Ok(if looked.failed.is_empty() { End::Fine } else { End::Unusable })
    }

    /// The newest version of each service, or the one that is asked for.
    fn chosen<'o>(&self, all: &'o [Of<Outline>]) -> Result<Vec<&'o Of<Outline>>, Unusable> {
        let named: Vec<_> = all.iter().filter(|of| of.row.saga == self.definition).collect();
        if named.is_empty() {
            let names: BTreeSet<_> = all.iter().map(|of| of.row.saga.as_str()).collect();
            let there = match names.is_empty() {
                true => "no process has told of any here; each does when it starts".to_owned(),
                false => format!("there are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
            };
            return Err(Unusable::new(&self.definition, format!("there is no saga of this name; {there}")));
        }
        let newest = |of: &Of<Outline>| {
            !named.iter().any(|other| other.service == of.service && other.row.version > of.row.version)
        };
        let wanted = |of: &Of<Outline>| self.version.map_or_else(|| newest(of), |version| of.row.version == version);
        let chosen: Vec<_> = named.iter().copied().filter(|of| wanted(of)).collect();
        if chosen.is_empty() {
            let versions: BTreeSet<_> = named.iter().map(|of| of.row.version.to_string()).collect();
            let why = format!("there is no such version, only {}", versions.into_iter().collect::<Vec<_>>().join(", "));
            return Err(Unusable::new(format!("{} --version", self.definition), why));
        }
        Ok(chosen)
    }
}
