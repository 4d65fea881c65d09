//! `malote doctor`: what is wrong with a database, its settings and malote's tables in it.

use crate::{
    End, Unusable,
    out::{Of, list, redacted},
    place::Place,
    store::Store,
};
use malote::inspect::{Finding, Grade};

/// Look for what is wrong: connection, versions, clocks, partitions, poolers, rights, settings
///
/// Ends with 1 when there is a fault, with 2 when a database cannot be reached.
#[derive(clap::Args)]
pub struct Args {
    /// For scripts: an array of objects, one for each finding
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub async fn run(args: &Args) -> Result<End, Unusable> {
    let looked = args.place.look_at_any(async |store: &Store| store.inspect().doctor().await).await?;
    let away = looked.failed.iter().map(|Of { service, row: why }| {
        let finding = Finding { grade: Grade::Fault, what: "connection".into(), says: redacted(why) };
        Of { service: service.clone(), row: finding }
    });
    let of_each = looked.answers.into_iter().flat_map(|Of { service, row: findings }| {
        findings.into_iter().map(move |row| Of { service: service.clone(), row })
    });
    let mut findings: Vec<_> = away.chain(of_each).collect();
    // the worst first, and otherwise as the services gave them
    findings.sort_by_key(|of| std::cmp::Reverse(of.row.grade));
    let worst = findings.first().map_or(Grade::Fine, |of| of.row.grade);
    list(&findings, looked.several, args.json)?;
    Ok(match worst {
        _ if !looked.failed.is_empty() => End::Unusable,
        Grade::Fault => End::Wrong,
        _ => End::Fine,
    })
}
