//! Redis in front of the store, for speed alone.
//!
//! It holds copies of finished answers, each with its request's fingerprint, and nothing else: no
//! claim, no lock. Only a copy whose fingerprint fits is used; everything else (whether a request
//! runs, whether a key was used for another) is asked of the database. So Redis may be empty, slow
//! or gone at any moment: what that costs is a question to the database.

use super::name;
use bytes::{Buf, BufMut, Bytes};
use malote_core::{Answer, RequestKey, planted};
use redis::{
    AsyncCommands, Client, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How long Redis may take before the request goes on without it.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long it is left alone after it failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a copy lives; the database knows the answer for longer.
const COPY_TIME: Duration = Duration::from_secs(600);
/// The largest copy, in bytes.
const MAX_COPY_BYTES: usize = 64 * 1024;
/// The first byte of a copy; another layout gets another one.
const LAYOUT: u8 = 1;

/// A Redis that holds copies of finished answers.
#[derive(Clone)]
pub struct Redis {
    manager: ConnectionManager,
    away_until: Arc<Mutex<Option<Instant>>>,
}

/// A Redis URL that cannot be used. The URL itself, which may hold a password, is not in it.
#[derive(Debug, thiserror::Error)]
#[error("the Redis URL cannot be used (redis://[user:password@]host[:port][/database] is expected): {0}")]
pub struct RedisUrl(#[source] redis::RedisError);

impl Redis {
    /// The Redis behind a URL such as `redis://127.0.0.1:6379`. It need not be there yet: it is
    /// connected to when it is first asked, and again whenever the connection breaks. Call it inside
    /// the async runtime.
    pub fn new(url: &str) -> Result<Self, RedisUrl> {
        let client = Client::open(url).map_err(RedisUrl)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(PAUSE))
            .set_response_timeout(None); // `within` bounds every call
        let manager = ConnectionManager::new_lazy_with_config(client, config).map_err(RedisUrl)?;
        Ok(Self { manager, away_until: Arc::default() })
    }

    /// The answer to a request, if there is a copy whose fingerprint fits.
    pub(super) async fn get(&self, service: &str, request: &RequestKey, fingerprint: &[u8; 32]) -> Option<Answer> {
        let mut redis = self.manager.clone();
        let name = name::copy(service, request);
        let copy: Option<Vec<u8>> = self.within(async move { redis.get(name).await }).await?;
        decode(copy?.into(), fingerprint)
    }

    /// Puts a copy of an answer there, for at most `keep`.
    pub(super) async fn put(
        &self,
        service: &str,
        request: &RequestKey,
        fingerprint: &[u8; 32],
        answer: &Answer,
        keep: Duration,
    ) {
        let Some(copy) = encode(answer, fingerprint) else { return };
        let mut redis = self.manager.clone();
        let name = name::copy(service, request);
        let seconds = COPY_TIME.min(keep).as_secs().max(1);
        self.within(async move { redis.set_ex::<_, _, ()>(name, copy, seconds).await }).await;
    }

    /// Asks Redis, unless it failed a moment ago, and not for long.
    async fn within<T>(&self, asking: impl Future<Output = RedisResult<T>>) -> Option<T> {
        let patience = if planted::is("edge-redis-time") { Duration::from_secs(86_400) } else { PATIENCE };
        if self.away().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let why = match tokio::time::timeout(patience, asking).await {
            Ok(Ok(found)) => {
                if self.set_away(None).is_some() {
                    tracing::info!("Redis answers again");
                }
                return Some(found);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {patience:?}"),
        };
        if self.set_away(Some(Instant::now() + PAUSE)).is_none() {
            tracing::warn!(error = why, "Redis is away; the database answers alone");
        }
        None
    }

    fn away(&self) -> Option<Instant> {
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was set before.
    fn set_away(&self, until: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.away_until.lock().unwrap_or_else(PoisonError::into_inner), until)
    }
}

/// Layout, fingerprint, status, length of the headers, headers as JSON, body.
fn encode(answer: &Answer, fingerprint: &[u8; 32]) -> Option<Vec<u8>> {
    let headers = serde_json::to_vec(&answer.headers).ok()?;
    let mut copy = Vec::with_capacity(39 + headers.len() + answer.body.len());
    copy.put_u8(LAYOUT);
    copy.put_slice(fingerprint);
    copy.put_u16(answer.status);
    copy.put_u32(headers.len().try_into().ok()?);
    copy.put_slice(&headers);
    copy.put_slice(&answer.body);
    (copy.len() <= MAX_COPY_BYTES).then_some(copy)
}

/// `None` for another request's copy, and for whatever else may lie there.
fn decode(mut copy: Bytes, fingerprint: &[u8; 32]) -> Option<Answer> {
    let layout = copy.try_get_u8().ok()?;
    let mut stored = [0; 32];
    copy.try_copy_to_slice(&mut stored).ok()?;
    if layout != LAYOUT || (stored != *fingerprint && !planted::is("edge-redis-fingerprint")) {
        return None;
    }
    let status = copy.try_get_u16().ok()?;
    let length = copy.try_get_u32().ok()? as usize;
    if length > copy.len() {
        return None;
    }
    let headers = serde_json::from_slice(&copy.split_to(length)).ok()?;
    Some(Answer { status, headers, body: copy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_back_whole_and_only_for_its_own_request() {
        let answer = Answer {
            status: 202,
            headers: vec![("location".into(), "/payment/1".into())],
            body: Bytes::from_static(b"{}\0\xff"),
        };
        let copy: Bytes = encode(&answer, &[7; 32]).expect("small enough").into();
        assert_eq!(decode(copy.clone(), &[7; 32]), Some(answer.clone()));
        assert_eq!(decode(copy.clone(), &[8; 32]), None);
        for cut in 0..39 {
            assert_eq!(decode(copy.slice(..cut), &[7; 32]), None, "cut at {cut}");
        }
        let large = Answer { body: vec![0; MAX_COPY_BYTES].into(), ..answer };
        assert_eq!(encode(&large, &[7; 32]), None);
    }

    #[tokio::test]
    async fn an_unusable_url_is_refused_without_its_password() {
        let Err(error) = Redis::new("redis://user:canary@:-1/x") else { panic!("refused") };
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}
