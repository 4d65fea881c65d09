//! Taking turns.

use crate::Fallible;
use std::time::Duration;

/// So often each of two ways is measured.
pub const ROUNDS: usize = 3;

/// Prints what one way's rate is beside the other's, `taken` in turn: (the way in question, the other).
pub fn print(what: &str, taken: &[(Duration, Duration)]) {
    let mut ratios: Vec<f64> = taken.iter().map(|(this, other)| other.as_secs_f64() / this.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!("{median:.2}  ({least:.2} to {most:.2})  {what}");
    let seconds: Vec<String> =
        taken.iter().map(|(this, other)| format!("{:.2}/{:.2}", this.as_secs_f64(), other.as_secs_f64())).collect();
    println!("      seconds, in turn: {}", seconds.join(" "));
}

/// Measures two ways in turn, the first one first in every second round.
pub async fn of<M>(mut measure: M) -> Fallible<Vec<(Duration, Duration)>>
where
    M: AsyncFnMut(bool) -> Fallible<Duration>,
{
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        taken.push(if round % 2 == 0 {
            let this = measure(true).await?;
            (this, measure(false).await?)
        } else {
            let other = measure(false).await?;
            (measure(true).await?, other)
        });
    }
    Ok(taken)
}
