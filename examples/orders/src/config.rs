//! Settings, all of them by environment; `orders --help` lists them.

use crate::saga::Waits;
use std::{path::PathBuf, time::Duration};
use support::config::{Common, Invalid, Lookup};

/// Every setting.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all programs are told.
    pub common: Common,
    /// Where the payment provider is; one in this process unless set.
    pub provider: Option<String>,
    /// Where the one in this process serves HTTP.
    pub provider_http: String,
    /// How long one call to it may take.
    pub patience: Duration,
    /// How long a reservation of stock lasts.
    pub reservation: Duration,
    /// How long the saga waits for its services.
    pub waits: Waits,
}

/// The variables and what they do, for `--help`.
pub fn help() -> String {
    support::config::help(
        "127.0.0.1:8084; 8085 inventory, 8086 billing, 8087 shipping",
        "\
  MALOTE_PROVIDER               http://… of the payment provider [one in this process, its book in
                                $MALOTE_DATA/provider.db]
  MALOTE_PROVIDER_HTTP          where the one in this process serves HTTP [127.0.0.1, any free port]
  MALOTE_PROVIDER_MS            how long one call to the provider may take [5000]
  MALOTE_RESERVATION_MS         how long stock is set aside for an order that is not paid [900000]
  MALOTE_ANSWER_MS              how long inventory and shipping may take to answer [30000]
  MALOTE_PAYMENT_ANSWER_MS      how long billing may take to answer [60000]
  MALOTE_PAYMENT_ASKS           how often billing is asked when it does not [5]",
    )
}

impl Config {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, Invalid> {
        Self::read(&|name| std::env::var(name).ok())
    }

    /// Reads variables by `lookup`.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let env = Lookup(lookup);
        let usual = Waits::default();
        let asks = env.within("MALOTE_PAYMENT_ASKS", usual.asks.into(), 1..=1_000)?;
        Ok(Self {
            common: Common::read(&env)?,
            provider: provider(&env)?,
            provider_http: env.text("MALOTE_PROVIDER_HTTP").unwrap_or_else(|| "127.0.0.1:0".into()),
            patience: env.milliseconds("MALOTE_PROVIDER_MS")?.unwrap_or(Duration::from_secs(5)),
            reservation: env.milliseconds("MALOTE_RESERVATION_MS")?.unwrap_or(Duration::from_secs(900)),
            waits: Waits {
                answer: env.milliseconds("MALOTE_ANSWER_MS")?.unwrap_or(usual.answer),
                payment: env.milliseconds("MALOTE_PAYMENT_ANSWER_MS")?.unwrap_or(usual.payment),
                asks: asks.try_into().unwrap_or(usual.asks),
            },
        })
    }

    /// Where notices to customers are put.
    pub fn mailbox(&self) -> PathBuf {
        self.common.data.join("mailbox")
    }
}

fn provider(env: &Lookup<'_>) -> Result<Option<String>, Invalid> {
    match env.text("MALOTE_PROVIDER") {
        Some(url) if !url.starts_with("http://") => {
            Err(Invalid::new("MALOTE_PROVIDER", "an address that begins with http:// is expected"))
        }
        url => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, Invalid> {
        let found = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Config::read(&found)
    }

    #[test]
    fn nothing_need_be_set() {
        let config = read(&[]).expect("fine");
        assert_eq!((config.provider, config.waits), (None, Waits::default()));
    }

    #[test]
    fn each_bad_setting_is_named() {
        for (name, value) in [
            ("MALOTE_HTTP", "8080"),
            ("MALOTE_PROVIDER", "localhost:8090"),
            ("MALOTE_PROVIDER_MS", "0"),
            ("MALOTE_RESERVATION_MS", "15m"),
            ("MALOTE_ANSWER_MS", "-1"),
            ("MALOTE_PAYMENT_ANSWER_MS", "x"),
            ("MALOTE_PAYMENT_ASKS", "0"),
        ] {
            assert_eq!(read(&[(name, value)]).expect_err(value).name, name);
        }
    }
}
