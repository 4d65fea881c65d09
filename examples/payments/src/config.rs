//! Settings, all of them by environment; `payments --help` lists them.
//!
//! A setting that cannot be used is an error that names the variable and says what is expected. What
//! may hold a secret is never shown.

use crate::{api, risk::Rules};
use lettre::message::Mailbox;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use support::config::{Common, Invalid, Lookup, Secret};

/// Every setting.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all programs are told.
    pub common: Common,
    /// How long a payment may be without an outcome; then it is under review.
    pub deadline: Duration,
    /// What may be asked for.
    pub limits: api::Limits,
    /// What fraud holds payments against.
    pub rules: Rules,
    /// Where notices go.
    pub notices: Notices,
}

/// Where notices go.
#[derive(Clone, Debug)]
pub enum Notices {
    /// Files in a folder.
    Mailbox(PathBuf),
    /// Mails by a server at `host:port`.
    Smtp {
        /// The server.
        host: String,
        /// Its port.
        port: u16,
        /// The sender.
        from: Mailbox,
        /// The receiver.
        to: Mailbox,
    },
    /// JSON to an address.
    Webhook(Secret),
}

/// The variables and what they do, for `--help`.
pub fn help() -> String {
    support::config::help(
        "127.0.0.1:8080; 8081 fraud, 8082 ledger, 8083 notification",
        "\
  MALOTE_PAYMENT_DEADLINE_MS    how long a payment may be without an outcome; then it is UNDER_REVIEW [60000]
  MALOTE_MAX_AMOUNT             largest amount of a payment, in minor units [1000000000000000]
  MALOTE_FRAUD_APPROVE_PERCENT  how many of a hundred payments fraud approves [70]
  MALOTE_FRAUD_SALT             goes into fraud's score, so that nobody outside can tell it [empty]
  MALOTE_FRAUD_LIMIT            largest amount that fraud approves, in minor units [1000000000000]
  MALOTE_FRAUD_PER_MINUTE       how many payments an account may make in a minute [any number]
  MALOTE_SMTP                   host:port of a mail server for notices
  MALOTE_MAIL_FROM, _TO         between whom mails go [payments@localhost, customers@localhost]
  MALOTE_WEBHOOK                http://… that takes notices as JSON, instead of mails
                                [neither: files in $MALOTE_DATA/mailbox]",
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
        let common = Common::read(&env)?;
        Ok(Self {
            deadline: env.milliseconds("MALOTE_PAYMENT_DEADLINE_MS")?.unwrap_or(Duration::from_secs(60)),
            limits: api::Limits {
                amount: env.within("MALOTE_MAX_AMOUNT", api::Limits::default().amount, 1..=i64::MAX)?,
            },
            rules: rules(&env)?,
            notices: notices(&env, &common.data)?,
            common,
        })
    }
}

fn rules(env: &Lookup<'_>) -> Result<Rules, Invalid> {
    let default = Rules::default();
    let percent = env.within("MALOTE_FRAUD_APPROVE_PERCENT", default.approve_percent.into(), 0..=100)?;
    Ok(Rules {
        approve_percent: percent.try_into().unwrap_or(100),
        salt: env.text("MALOTE_FRAUD_SALT").unwrap_or_default(),
        limit: env.within("MALOTE_FRAUD_LIMIT", default.limit, 1..=i64::MAX)?,
        per_minute: env.parsed("MALOTE_FRAUD_PER_MINUTE", "a number of payments")?,
    })
}

fn notices(env: &Lookup<'_>, data: &Path) -> Result<Notices, Invalid> {
    let address = |name, default: &str| {
        let address = env.text(name).unwrap_or_else(|| default.into());
        address.parse().map_err(|_| Invalid::new(name, format!("a mail address is expected, not {address:?}")))
    };
    match (env.text("MALOTE_SMTP"), env.secret("MALOTE_WEBHOOK")) {
        (Some(_), Some(_)) => {
            Err(Invalid::new("MALOTE_SMTP", "MALOTE_WEBHOOK is set too: notices go one way, unset one"))
        }
        (Some(server), None) => {
            let expected = || Invalid::new("MALOTE_SMTP", format!("host:port is expected, not {server:?}"));
            let (host, port) = server.rsplit_once(':').ok_or_else(expected)?;
            Ok(Notices::Smtp {
                host: host.into(),
                port: port.parse().map_err(|_| expected())?,
                from: address("MALOTE_MAIL_FROM", "payments@localhost")?,
                to: address("MALOTE_MAIL_TO", "customers@localhost")?,
            })
        }
        (None, Some(url)) if url.expose().starts_with("http://") => Ok(Notices::Webhook(url)),
        (None, Some(_)) => Err(Invalid::new("MALOTE_WEBHOOK", "an address that begins with http:// is expected")),
        (None, None) => Ok(Notices::Mailbox(data.join("mailbox"))),
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
        let config = read(&[("MALOTE_STORE", "")]).expect("fine");
        assert!(matches!(config.notices, Notices::Mailbox(path) if path.ends_with("data/mailbox")));
        assert_eq!(config.rules, Rules::default());
    }

    #[test]
    fn each_bad_setting_is_named_and_no_secret_is_shown() {
        for (name, value) in [
            ("MALOTE_HTTP", "8080"),
            ("MALOTE_HTTP", ":8080"),
            ("MALOTE_HTTP", "127.0.0.1:99999"),
            ("MALOTE_STORE", "mysql://u:canary@h/d"),
            ("MALOTE_TRANSPORT", "amqp://u:canary@h"),
            ("MALOTE_TRANSPORT", "embedded:"),
            ("MALOTE_LEASE_MS", "5s"),
            ("MALOTE_LEASE_MS", "0"),
            ("MALOTE_LEASE_MS", "499"),
            ("MALOTE_LEASE_MS", "3600001"),
            ("MALOTE_REQUEST_MS", "-5"),
            ("MALOTE_PAYMENT_DEADLINE_MS", "0"),
            ("MALOTE_KAFKA_SESSION_MS", "-1"),
            ("MALOTE_MAX_AMOUNT", "0"),
            ("MALOTE_MAX_AMOUNT", "1e15"),
            ("MALOTE_FRAUD_APPROVE_PERCENT", "101"),
            ("MALOTE_FRAUD_LIMIT", "x"),
            ("MALOTE_FRAUD_PER_MINUTE", "-1"),
            ("MALOTE_SMTP", "mail"),
            ("MALOTE_WEBHOOK", "https://u:canary@h"),
        ] {
            let error = read(&[(name, value)]).expect_err(value);
            assert_eq!(error.name, name);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let both = read(&[("MALOTE_SMTP", "mail:25"), ("MALOTE_WEBHOOK", "http://h")]).expect_err("two ways");
        assert_eq!(both.name, "MALOTE_SMTP");
        assert_eq!(
            read(&[("MALOTE_SMTP", "mail:25"), ("MALOTE_MAIL_TO", "x")]).expect_err("no address").name,
            "MALOTE_MAIL_TO"
        );
    }

    #[test]
    fn settings_can_be_shown_without_their_secrets() {
        let config = read(&[
            ("MALOTE_STORE", "postgres://u:canary@h/{service}"),
            ("MALOTE_TRANSPORT", "kafka://h:9092?sasl.password=canary"),
            ("MALOTE_REDIS", "redis://:canary@h"),
            ("MALOTE_WEBHOOK", "http://h/canary"),
        ])
        .expect("fine");
        let shown = format!("{config:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}
