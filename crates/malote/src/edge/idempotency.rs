//! The layer's settings.

use super::{Problem, buffer, service::IdempotencyService};
use crate::Outbox;
use http::request::Parts;
use malote_core::{IdempotencyStore, StoreError};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tower::Layer;

/// Who asks: a function of the request's head.
type Caller = dyn Fn(&Parts) -> Result<String, Problem> + Send + Sync;

/// Makes POST and PATCH requests take effect once: a [`tower::Layer`] for axum.
///
/// See the [module](super) for a whole handler. Other methods pass untouched.
#[derive(Clone)]
pub struct Idempotency<S> {
    pub(super) outbox: Outbox<S>,
    pub(super) service: Arc<str>,
    pub(super) limits: Limits,
    pub(super) caller: Arc<Caller>,
    #[cfg(feature = "redis")]
    pub(super) redis: Option<super::Redis>,
}

/// Sizes and times of an [`Idempotency`] layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of a request, in bytes; larger ones get 413. 64 KiB.
    pub body_bytes: usize,
    /// How long a body may take to arrive; slower ones get 408. 10 s.
    pub body_time: Duration,
    /// How long the handler may take; then its transaction is rolled back and the client gets 503.
    /// A commit that has begun is waited for. 10 s.
    pub work_time: Duration,
    /// When the key of a process that died is free for the next attempt, by the database's clock;
    /// at least twice `work_time`. 30 s.
    pub lease: Duration,
    /// How long an answer is kept at least. 24 h.
    pub keep: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: buffer::BODY_BYTES,
            body_time: buffer::BODY_TIME,
            work_time: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            keep: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Limits that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the idempotency limits contradict each other: the lease is {lease:?} and must be at least twice the work time, \
     {work_time:?}, or a slow request loses its key while it still runs"
)]
pub struct Unsound {
    /// The lease asked for.
    pub lease: Duration,
    /// The work time asked for.
    pub work_time: Duration,
}

impl<S: IdempotencyStore> Idempotency<S> {
    /// A layer over the database of `service`, in which the handlers do their work.
    pub fn new(store: S, service: &str) -> Self {
        Self {
            outbox: Outbox::new(service, store),
            service: service.into(),
            limits: Limits::default(),
            caller: Arc::new(|_| Ok("anonymous".into())),
            #[cfg(feature = "redis")]
            redis: None,
        }
    }

    /// Other limits.
    pub fn limits(mut self, limits: Limits) -> Result<Self, Unsound> {
        if limits.lease < 2 * limits.work_time {
            return Err(Unsound { lease: limits.lease, work_time: limits.work_time });
        }
        self.limits = limits;
        Ok(self)
    }

    /// Says who asks, from the request's head: an account, a tenant. Keys are apart per caller, and
    /// no caller learns of another's. A problem (401, say) is the answer.
    ///
    /// Unless this is set everybody is one caller, `anonymous`: fine behind a gateway that serves one
    /// party, or where keys are random and secret.
    pub fn caller(mut self, who: impl Fn(&Parts) -> Result<String, Problem> + Send + Sync + 'static) -> Self {
        self.caller = Arc::new(who);
        self
    }

    /// Puts Redis in front, with copies of finished answers.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: super::Redis) -> Self {
        self.redis = Some(redis);
        self
    }

    /// Removes answers that are older than `keep`, until `stop`: about once a minute, 1,000 at a time.
    /// Every process of a service may run it.
    pub async fn janitor(self, stop: CancellationToken) {
        const MOST: u32 = 1_000;
        const PAUSE: Duration = Duration::from_secs(60);
        while !stop.is_cancelled() {
            let pause = match self.forget(MOST).await {
                Ok(removed) if removed >= u64::from(MOST) => Duration::ZERO,
                Ok(_) => PAUSE,
                Err(error) => {
                    tracing::warn!(error = malote_core::chain(&error), "old answers could not be removed");
                    PAUSE
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Removes up to `most` answers that are older than `keep`; returns how many.
    pub async fn forget(&self, most: u32) -> Result<u64, StoreError> {
        self.outbox.store().forget(self.limits.keep, most).await
    }
}

impl<S: IdempotencyStore, I> Layer<I> for Idempotency<S> {
    type Service = IdempotencyService<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        IdempotencyService::new(Arc::new(self.clone()), inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_are_sound() {
        let limits = Limits::default();
        assert!(limits.lease >= 2 * limits.work_time);
    }
}
