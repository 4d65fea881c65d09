//! Plain async functions are the API: the signature is the service's row in the flow.

use crate::{BoxFuture, Event, Events, Outcome, Store, retry::Policy};
use std::future::Future;

/// Reacts to one event inside one transaction.
///
/// Every `async fn(event, &mut Tx) -> Outcome<impl Events>` is one. What it returns is written to the
/// outbox in the same transaction as what it did and the row that remembers the event, so all of it
/// happens once or not at all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for this store",
    label = "not a handler",
    note = "a handler is `async fn(event: impl Event, tx: &mut Tx) -> Outcome<impl Events>`",
    note = "`Tx` must be the transaction of the service's own store; with state, use `with(state, handler)`"
)]
pub trait Handler<S: Store, M>: Send + Sync + 'static {
    /// The event it reacts to.
    type Consumes: Event;
    /// What it may emit.
    type Emits: Events;
    /// Reacts.
    fn handle<'t>(&'t self, event: Self::Consumes, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<Self::Emits>>;
    /// How its failures are tried again; as the service says where it says nothing. See [`retrying`].
    fn policy(&self) -> Option<Policy> {
        None
    }
}

#[doc(hidden)]
pub trait HandlerFn<'t, E, T: 't, O>: Fn(E, &'t mut T) -> Self::Fut {
    type Fut: Future<Output = Outcome<O>> + Send + 't;
}
impl<'t, F, E, T: 't, O, Fut> HandlerFn<'t, E, T, O> for F
where
    F: Fn(E, &'t mut T) -> Fut,
    Fut: Future<Output = Outcome<O>> + Send + 't,
{
    type Fut = Fut;
}

impl<S, F, E, O> Handler<S, (E, O)> for F
where
    S: Store,
    E: Event,
    O: Events,
    F: for<'t> HandlerFn<'t, E, S::Tx, O> + Send + Sync + 'static,
{
    type Consumes = E;
    type Emits = O;
    fn handle<'t>(&'t self, event: E, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<O>> {
        Box::pin(self(event, tx))
    }
}

/// A function with something to lean on; see [`with`].
pub struct With<X, F>(X, F);

/// Gives a handler state: `with(limits, assess)` for `async fn assess(event, tx, limits: &Limits)`,
/// or an effect: `with(mailer, deliver)` for `async fn deliver(event, key, mailer: &Mailer)`, and what
/// records its outcome, in the way of a handler.
pub fn with<X, F>(state: X, function: F) -> With<X, F> {
    With(state, function)
}

/// A handler or effect with a policy of its own; see [`retrying`].
pub struct Retrying<H>(Policy, H);

/// Gives a handler or an effect its own way of being tried again:
/// `retrying(Policy::default().attempts(3), settle)`.
pub fn retrying<H>(policy: Policy, handler: H) -> Retrying<H> {
    Retrying(policy, handler)
}

#[doc(hidden)]
pub struct Retried<M>(std::marker::PhantomData<fn(M)>);

impl<S: Store, M: 'static, H: Handler<S, M>> Handler<S, Retried<M>> for Retrying<H> {
    type Consumes = H::Consumes;
    type Emits = H::Emits;
    fn handle<'t>(&'t self, event: H::Consumes, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<H::Emits>> {
        self.1.handle(event, tx)
    }
    fn policy(&self) -> Option<Policy> {
        Some(self.0)
    }
}

impl<M: 'static, H: Effect<M>> Effect<Retried<M>> for Retrying<H> {
    type Consumes = H::Consumes;
    type Yields = H::Yields;
    fn call<'t>(&'t self, event: H::Consumes, key: IdempotencyKey) -> BoxFuture<'t, Outcome<H::Yields>> {
        self.1.call(event, key)
    }
    fn policy(&self) -> Option<Policy> {
        Some(self.0)
    }
}

#[doc(hidden)]
pub trait HandlerFnWith<'t, E, T: 't, X: 't, O>: Fn(E, &'t mut T, &'t X) -> Self::Fut {
    type Fut: Future<Output = Outcome<O>> + Send + 't;
}
impl<'t, F, E, T: 't, X: 't, O, Fut> HandlerFnWith<'t, E, T, X, O> for F
where
    F: Fn(E, &'t mut T, &'t X) -> Fut,
    Fut: Future<Output = Outcome<O>> + Send + 't,
{
    type Fut = Fut;
}

impl<S, F, E, X, O> Handler<S, (E, X, O)> for With<X, F>
where
    S: Store,
    E: Event,
    O: Events,
    X: Send + Sync + 'static,
    F: for<'t> HandlerFnWith<'t, E, S::Tx, X, O> + Send + Sync + 'static,
{
    type Consumes = E;
    type Emits = O;
    fn handle<'t>(&'t self, event: E, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<O>> {
        Box::pin((self.1)(event, tx, &self.0))
    }
}

/// What an effect hands to the outside world so that a repeat is recognised.
///
/// The same for every attempt at the same intention: a hash of the consumer, the event and the effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub String);

/// As it goes into a header: printable ASCII, without spaces or quotes.
impl std::fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reacts to one event with a call to the outside, with no transaction open.
///
/// It may run more than once (the process can die between the call and the record of it), so it is
/// given a key that stays the same. What it returns is then recorded in one transaction, once.
pub trait Effect<M>: Send + Sync + 'static {
    /// The event it reacts to.
    type Consumes: Event;
    /// What came of the call, for the record.
    type Yields: Send + 'static;
    /// Calls the outside.
    fn call<'t>(&'t self, event: Self::Consumes, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Self::Yields>>;
    /// How its failures are tried again; as the service says where it says nothing. See [`retrying`].
    fn policy(&self) -> Option<Policy> {
        None
    }
}

impl<F, E, Y, Fut> Effect<(E, Y)> for F
where
    E: Event,
    Y: Send + 'static,
    F: Fn(E, IdempotencyKey) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome<Y>> + Send + 'static,
{
    type Consumes = E;
    type Yields = Y;
    fn call<'t>(&'t self, event: E, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Y>> {
        Box::pin(self(event, key))
    }
}

#[doc(hidden)]
pub trait EffectFnWith<'t, E, X: 't, Y>: Fn(E, IdempotencyKey, &'t X) -> Self::Fut {
    type Fut: Future<Output = Outcome<Y>> + Send + 't;
}
impl<'t, F, E, X: 't, Y, Fut> EffectFnWith<'t, E, X, Y> for F
where
    F: Fn(E, IdempotencyKey, &'t X) -> Fut,
    Fut: Future<Output = Outcome<Y>> + Send + 't,
{
    type Fut = Fut;
}

impl<F, E, X, Y> Effect<(E, X, Y)> for With<X, F>
where
    E: Event,
    X: Send + Sync + 'static,
    Y: Send + 'static,
    F: for<'t> EffectFnWith<'t, E, X, Y> + Send + Sync + 'static,
{
    type Consumes = E;
    type Yields = Y;
    fn call<'t>(&'t self, event: E, key: IdempotencyKey) -> BoxFuture<'t, Outcome<Y>> {
        Box::pin((self.1)(event, key, &self.0))
    }
}

/// Writes down what came of an effect, in the transaction that marks its event as handled.
///
/// Every `async fn(yielded, &mut Tx) -> Outcome<impl Events>` is one; with state, see [`with`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot record what the effect yields in this store",
    note = "a record is `async fn(yielded: Y, tx: &mut Tx) -> Outcome<impl Events>`"
)]
pub trait Record<S: Store, Y, O>: Send + Sync + 'static {
    /// Writes it down.
    fn record<'t>(&'t self, yielded: Y, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<O>>;
}

impl<S, F, Y, O> Record<S, Y, O> for F
where
    S: Store,
    O: Events,
    F: for<'t> HandlerFn<'t, Y, S::Tx, O> + Send + Sync + 'static,
{
    fn record<'t>(&'t self, yielded: Y, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<O>> {
        Box::pin(self(yielded, tx))
    }
}

impl<S, F, Y, X, O> Record<S, Y, O> for With<X, F>
where
    S: Store,
    O: Events,
    X: Send + Sync + 'static,
    F: for<'t> HandlerFnWith<'t, Y, S::Tx, X, O> + Send + Sync + 'static,
{
    fn record<'t>(&'t self, yielded: Y, tx: &'t mut S::Tx) -> BoxFuture<'t, Outcome<O>> {
        Box::pin((self.1)(yielded, tx, &self.0))
    }
}
