//! How the ledger decides: what two balances become, or why they stay as they are.

use crate::contracts::Reason;
use malote::planted;

/// The most that an account may hold, in minor units. The database holds to it too.
pub const MAX_BALANCE: i64 = 1_000_000_000_000_000_000;

/// The new balances of the account that pays and of the one that is paid; an account that is not
/// there has no balance.
pub fn transfer(amount: i64, from: Option<i64>, to: Option<i64>) -> Result<(i64, i64), Reason> {
    if amount <= 0 && !planted::is("ledger-amount") {
        return Err(Reason::INVALID_AMOUNT);
    }
    let (Some(from), Some(to)) = (from, to) else { return Err(Reason::UNKNOWN_ACCOUNT) };
    let left = from.checked_sub(amount).filter(|left| *left >= 0 || planted::is("ledger-funds"));
    let left = left.ok_or(Reason::INSUFFICIENT_FUNDS)?;
    let held = match planted::is("ledger-overflow") {
        true => Some(to.wrapping_add(amount)),
        false => to.checked_add(amount).filter(|held| *held <= MAX_BALANCE),
    };
    Ok((left, held.ok_or(Reason::BALANCE_TOO_LARGE)?))
}

/// An amount as people write it: `15.00` for 1500.
pub fn readable(amount: i64) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    let amount = amount.unsigned_abs();
    format!("{sign}{}.{:02}", amount / 100, amount % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_moves_or_the_reason_is_told() {
        assert_eq!(transfer(30, Some(100), Some(5)), Ok((70, 35)));
        assert_eq!(transfer(100, Some(100), Some(0)), Ok((0, 100)));
        assert_eq!(transfer(101, Some(100), Some(0)), Err(Reason::INSUFFICIENT_FUNDS));
        assert_eq!(transfer(1, None, Some(0)), Err(Reason::UNKNOWN_ACCOUNT));
        assert_eq!(transfer(1, Some(9), None), Err(Reason::UNKNOWN_ACCOUNT));
        assert_eq!(transfer(1, Some(MAX_BALANCE), Some(MAX_BALANCE)), Err(Reason::BALANCE_TOO_LARGE));
    }

    #[test]
    fn no_amount_leaves_the_range_of_numbers() {
        for amount in [0, -1, i64::MIN] {
            assert_eq!(transfer(amount, Some(MAX_BALANCE), Some(0)), Err(Reason::INVALID_AMOUNT));
        }
        assert_eq!(transfer(i64::MAX, Some(MAX_BALANCE), Some(MAX_BALANCE)), Err(Reason::INSUFFICIENT_FUNDS));
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(readable(1500), "15.00");
        assert_eq!(readable(7), "0.07");
        assert_eq!(readable(9_007_199_254_740_993), "90071992547409.93");
        assert_eq!(readable(i64::MIN), "-92233720368547758.08");
    }
}
