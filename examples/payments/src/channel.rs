//! The ways out: how a notice reaches a person or a program.
//!
//! Each carries the notice's key, so that whoever receives it recognises a repeat: as the file's name
//! in the mailbox, as the Message-ID of a mail, as the `Idempotency-Key` of a webhook.

use crate::{
    contracts::{PaymentFailed, PaymentRejected, PaymentSettled},
    money,
};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor, message};
use malote::{Event, Failure, IdempotencyKey, Outcome};
use std::time::Duration;
use support::mailbox::Mailbox;
use uuid::Uuid;

/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is told about a payment that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The payment.
    pub payment: Uuid,
    /// The type of the event that ended it.
    pub event: &'static str,
    /// In a few words.
    pub subject: String,
    /// In a sentence.
    pub body: String,
}

impl Notice {
    fn new(payment: Uuid, event: &'static str, outcome: &str, amount: i64, from: &str, to: &str) -> Self {
        Self {
            payment,
            event,
            subject: format!("Payment {outcome}"),
            body: format!("The payment {payment} of {} from {from} to {to} was {outcome}.", money::readable(amount)),
        }
    }

    fn because(mut self, reason: &crate::contracts::Reason) -> Self {
        self.body.push_str(&format!(" Reason: {reason}."));
        self
    }
}

impl From<PaymentSettled> for Notice {
    fn from(p: PaymentSettled) -> Self {
        Self::new(p.id, PaymentSettled::TYPE, "settled", p.amount, &p.from, &p.to)
    }
}

impl From<PaymentRejected> for Notice {
    fn from(p: PaymentRejected) -> Self {
        Self::new(p.id, PaymentRejected::TYPE, "rejected", p.amount, &p.from, &p.to).because(&p.reason)
    }
}

impl From<PaymentFailed> for Notice {
    fn from(p: PaymentFailed) -> Self {
        Self::new(p.id, PaymentFailed::TYPE, "not made", p.amount, &p.from, &p.to).because(&p.reason)
    }
}

/// A way out.
#[derive(Clone)]
pub enum Channel {
    /// A folder with a file for each notice.
    Mailbox(Mailbox),
    /// A mail server.
    Smtp(Smtp),
    /// A program that takes JSON by POST.
    Webhook(Webhook),
}

/// A mail server, and between whom the mails go.
#[derive(Clone)]
pub struct Smtp {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: message::Mailbox,
    to: message::Mailbox,
}

impl Smtp {
    /// A mail server that takes mail without encryption and login: one on this machine or network.
    pub fn new(host: &str, port: u16, from: message::Mailbox, to: message::Mailbox) -> Self {
        let server = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host).port(port).timeout(Some(PATIENCE));
        Self { server: server.build(), from, to }
    }

    async fn send(&self, key: &IdempotencyKey, notice: &Notice) -> Outcome {
        let mail = Message::builder()
            .message_id(Some(format!("<{}@payments.malote>", key.0)))
            .from(self.from.clone())
            .to(self.to.clone())
            .subject(&notice.subject)
            .body(notice.body.clone())
            .map_err(|error| Failure::reject(format!("the mail cannot be written: {error}")))?;
        match self.server.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() => Err(Failure::reject(format!("the mail server refuses: {error}"))),
            Err(error) => Err(Failure::retry(format!("the mail could not be sent: {error}"))),
        }
    }
}

/// A program that takes JSON by POST.
#[derive(Clone)]
pub struct Webhook {
    client: reqwest::Client,
    url: reqwest::Url,
}

impl Webhook {
    /// A webhook at an `http://` address.
    pub fn new(url: reqwest::Url) -> Result<Self, reqwest::Error> {
        Ok(Self { client: reqwest::Client::builder().timeout(PATIENCE).build()?, url })
    }

    async fn send(&self, key: &IdempotencyKey, notice: &Notice) -> Outcome {
        let body = serde_json::json!({
            "payment": notice.payment, "event": notice.event, "subject": notice.subject, "body": notice.body,
        });
        let sent = self.client.post(self.url.clone()).header("Idempotency-Key", &key.0).json(&body).send().await;
        // the address may hold a secret
        let answer = sent.map_err(|error| Failure::retry(format!("the webhook: {}", error.without_url())))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status if status.is_client_error() && !matches!(status.as_u16(), 408 | 409 | 425 | 429) => {
                Err(Failure::reject(format!("the webhook refuses with {status}")))
            }
            status => Err(Failure::retry(format!("the webhook answers {status}"))),
        }
    }
}

impl Channel {
    /// Its name, for the record.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mailbox(_) => "mailbox",
            Self::Smtp(_) => "smtp",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Sends a notice under a key; again under the same key, it is the same notice.
    pub async fn send(&self, key: &IdempotencyKey, notice: &Notice) -> Outcome {
        match self {
            Self::Mailbox(mailbox) => Ok(mailbox.put(key, &notice.subject, &notice.body).await?),
            Self::Smtp(smtp) => smtp.send(key, notice).await,
            Self::Webhook(webhook) => webhook.send(key, notice).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::Reason;

    #[tokio::test]
    async fn a_repeat_replaces_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Channel::Mailbox(Mailbox::new(folder.path().join("mailbox"), "payments.malote"));
        let event = PaymentFailed {
            id: Uuid::nil(),
            amount: 999_999_999,
            from: "carol".into(),
            to: "bob".into(),
            reason: Reason::INSUFFICIENT_FUNDS,
        };
        for _ in 0..3 {
            mailbox.send(&IdempotencyKey("k".into()), &event.clone().into()).await.expect("sent");
        }
        let files: Vec<_> = std::fs::read_dir(folder.path().join("mailbox")).expect("there").flatten().collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let text = std::fs::read_to_string(files[0].path()).expect("readable");
        assert!(text.contains("Payment not made") && text.contains("9999999.99 from carol to bob"), "{text}");
        assert!(text.contains("INSUFFICIENT_FUNDS"), "{text}");
    }
}
