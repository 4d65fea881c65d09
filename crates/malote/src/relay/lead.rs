//! What a relay does while it holds the lease.

use super::{
    Relay, RelayError,
    asking::{Burying, Reading, SAVE_EVERY, STORE_ANSWERS, Saving, Upkeep, apart, in_time},
    lanes::{Lanes, Way},
    sender::{Settled, Told, What, unreadable},
};
use malote_core::{
    BoxFuture, Dead, Envelope, Lease, Read, Row, Saved, Store,
    relay::{Budget, Cursor, Traffic, Window},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// Bytes of rows that one read aims at; the number of rows follows from their size so far.
const READ_BYTES: usize = 4 << 20;
const READ_ROWS: usize = 4_000;
/// A lane's share: reads whose rows may be under way in it.
const READS: usize = 3;
/// More ranges of gaps than this, and the relay reads no further until some close.
const MOST_GAPS: usize = 10_000;
const SHORTEST_POLL: Duration = Duration::from_millis(5);

/// How a lease came to its end.
pub(super) enum End {
    /// Told to stop; all reports that came are saved.
    Stopped,
    /// Somebody else has the lease.
    Fenced,
}

/// One lease's work.
pub(super) struct Leader<'r, S: Store> {
    pub(super) relay: &'r Relay<S>,
    pub(super) lease: &'r Lease,
    pub(super) traffic: Traffic,
    pub(super) lanes: Lanes<'r>,
    /// Whether the cursor is another than the stored one.
    pub(super) dirty: bool,
    /// The stored cursor.
    pub(super) saved: Cursor,
    pub(super) last_save: Instant,
    /// Until when nobody else can have the lease, by this process's own steady clock.
    pub(super) ours_until: Instant,
    pub(super) next_read: Instant,
    /// The last look at the tail while no lane had room for it.
    pub(super) last_look: Instant,
    pub(super) poll: Duration,
    /// A sign of new rows came after the last read began, which may not have seen them.
    pub(super) woken: bool,
    pub(super) next_upkeep: Instant,
    /// Rows that were read and wait for the certainty that the lease is ours.
    pub(super) ready: BTreeMap<usize, Vec<Row>>,
    /// Rows that will never be published.
    pub(super) aside: Vec<(i64, Dead)>,
    /// What may be sent a second time, by the time since `began`.
    pub(super) budget: Budget,
    pub(super) began: Instant,
    /// Average size of a row, in bytes.
    pub(super) row_bytes: usize,
    pub(super) gap_since: Option<Instant>,
    /// When to leave, finished or not, once told to stop.
    pub(super) leave: Option<Instant>,
}

impl<S: Store> Relay<S> {
    /// Works under a lease that was asked for at `asked`, from `cursor` on, until it ends.
    pub(super) async fn lead(&self, lease: &Lease, cursor: Cursor, asked: Instant) -> Result<End, RelayError> {
        let (service, settings) = (&self.service, &self.service.settings);
        let way = Way {
            service: service.name.clone(),
            transport: service.transport.clone(),
            deadline: settings.sending.deadline,
            counts: self.counts.clone(),
        };
        let (lanes, told) = Lanes::new(way, &self.beat, settings.backoff);
        let mut traffic = Traffic::resume(cursor.clone(), settings.sending.lanes, READS * READ_ROWS);
        // what is declared has its lane from the start, so that it is not held up by what is not
        for topic in service.flow().emitted_topics() {
            traffic.lane(&topic);
        }
        let now = Instant::now();
        let leader = Leader {
            relay: self,
            lease,
            traffic,
            lanes,
            dirty: false,
            saved: cursor,
            last_save: now,
            ours_until: asked + settings.lease,
            next_read: now,
            last_look: now,
            poll: SHORTEST_POLL,
            woken: false,
            next_upkeep: now,
            ready: BTreeMap::new(),
            aside: Vec::new(),
            budget: Budget::new(settings.sending.again, Duration::ZERO),
            began: now,
            row_bytes: 1024,
            gap_since: None,
            leave: None,
        };
        leader.run(told).await
    }
}

impl<S: Store> Leader<'_, S> {
    async fn run(mut self, mut told: mpsc::UnboundedReceiver<Told>) -> Result<End, RelayError> {
        let (mut reading, mut saving, mut upkeep) = (None::<Reading>, None::<Saving>, None::<Upkeep>);
        let mut burying = None::<Burying>;
        let mut waking = self.waking();
        loop {
            self.relay.beat.advanced();
            let now = Instant::now();
            self.open_lanes(now);
            self.hand_over(now);
            if burying.is_none() && !self.aside.is_empty() {
                burying = Some(self.bury());
            }
            let drained = self.is_drained(now) && (burying.is_none() || self.is_late(now)) && told.is_empty();
            if saving.is_none() && self.save_is_due(now, drained) {
                saving = Some(self.save());
            }
            if drained && saving.is_none() {
                self.lanes.cut_off().await;
                return Ok(End::Stopped);
            }
            if reading.is_none() && self.ready.is_empty() {
                reading = self.read(now);
            }
            // by a clock of its own: under load nothing is ever idle
            let busy = malote_core::planted::is("clean-when-idle") && self.last_save + Duration::from_secs(1) > now;
            if upkeep.is_none() && now >= self.next_upkeep && !busy {
                self.next_upkeep = now + self.relay.service.settings.sending.upkeep;
                self.tell_gaps();
                upkeep = Some(self.upkeep());
            }
            let timer = self.next_look(now, reading.is_none(), saving.is_none());
            tokio::select! {
                biased;
                () = self.relay.stop.cancelled(), if self.leave.is_none() => self.leave(),
                done = slot(&mut upkeep) => {
                    upkeep = None;
                    self.was_kept_up(done);
                }
                (ticket, cursor, asked, outcome) = slot(&mut saving) => {
                    saving = None;
                    if self.was_saved(ticket, cursor, asked, outcome)? == Saved::Fenced {
                        self.lanes.cut_off().await;
                        return Ok(End::Fenced);
                    }
                }
                (window, seen) = slot(&mut reading) => {
                    reading = None;
                    self.observe(&window, seen?);
                }
                buried = slot(&mut burying) => {
                    burying = None;
                    self.traffic.set_aside(&buried?);
                    self.dirty = true;
                }
                Some(Told { lane, what }) = told.recv() => self.hear(lane, what),
                () = &mut waking => {
                    waking = self.waking();
                    (self.woken, self.next_read) = (true, Instant::now());
                }
                () = tokio::time::sleep_until(timer) => {}
            }
        }
    }

    /// Takes nothing new from here on.
    fn leave(&mut self) {
        let hasty = malote_core::planted::is("leave-at-once");
        let finish = if hasty { Duration::ZERO } else { self.relay.beat.time_to_finish() };
        self.leave = Some(Instant::now() + finish);
        self.lanes.close();
    }

    fn is_late(&self, now: Instant) -> bool {
        self.leave.is_some_and(|leave| now >= leave) && !malote_core::planted::is("wait-for-the-silent")
    }

    /// Whether all that was under way is done with, or has to be left to whoever leads next.
    fn is_drained(&mut self, now: Instant) -> bool {
        let over = self.lanes.are_over() && self.aside.is_empty();
        self.leave.is_some() && (over || self.is_late(now))
    }

    /// When to look again if nothing happens.
    fn next_look(&self, now: Instant, may_read: bool, may_save: bool) -> Instant {
        let renewal = self.last_save + self.relay.service.settings.lease / 2;
        let mut next = renewal.min(self.next_upkeep);
        if may_save && self.is_dirty() {
            next = next.min(self.last_save + SAVE_EVERY);
        }
        if let Some(leave) = self.leave {
            return next.min(leave);
        }
        next = self.lanes.next_opening().map_or(next, |opens| next.min(opens));
        if may_read && self.ready.is_empty() {
            next = next.min(self.next_tail(now));
            if self.traffic.waits_for_budget() {
                next = next.min(self.began + self.budget.next());
            }
        }
        next
    }

    /// When the tail may be read.
    fn next_tail(&self, now: Instant) -> Instant {
        if self.next_read > now || self.traffic.has_room(self.limit()) {
            return self.next_read;
        }
        // those that keep up are waited for a little; and now and then there may be a new topic
        let patience = self.traffic.waited_for().map(|lane| self.lanes.waits_until(lane)).min();
        let look = self.last_look + self.relay.service.settings.idle_poll;
        patience.map_or(look, |until| until.max(now + SHORTEST_POLL)).min(look)
    }

    fn open_lanes(&mut self, now: Instant) {
        while let Some(lane) = self.lanes.opens(now) {
            self.traffic.open(lane);
        }
        if self.next_read <= now && !self.traffic.has_room(self.limit()) {
            let slow: Vec<usize> =
                self.traffic.waited_for().filter(|lane| self.lanes.waits_until(*lane) <= now).collect();
            slow.into_iter().for_each(|lane| self.traffic.is_slow(lane));
        }
    }

    /// Hands over what was read, unless the lease may have passed to another meanwhile.
    fn hand_over(&mut self, now: Instant) {
        if self.leave.is_some() {
            // read before it was told to stop; whoever leads next reads it again
            self.ready.clear();
        }
        if now < self.ours_until {
            for (lane, rows) in std::mem::take(&mut self.ready) {
                self.lanes.send(lane, rows);
            }
        }
    }

    fn waking(&self) -> BoxFuture<'static, ()> {
        let store = self.relay.service.store.clone();
        Box::pin(async move { store.woken().await })
    }

    fn limit(&self) -> usize {
        (READ_BYTES / self.row_bytes.max(1)).clamp(16, READ_ROWS)
    }

    /// Reads what can be sent, if there may be any.
    fn read(&mut self, now: Instant) -> Option<Reading> {
        if self.leave.is_some() || self.traffic.gaps().parts() >= MOST_GAPS {
            return None;
        }
        let limit = self.limit();
        let unbounded = malote_core::planted::is("no-budget");
        let again = if unbounded { usize::MAX } else { self.budget.allows(now - self.began) };
        let due = now >= self.next_read;
        let has_room = self.traffic.has_room(limit);
        let look = now >= self.last_look + self.relay.service.settings.idle_poll;
        let tail = due && (has_room || look);
        if !tail && !self.traffic.has_ready(again) {
            return None;
        }
        if tail {
            (self.woken, self.last_look) = (false, now);
        }
        let window = self.traffic.window(limit, tail, again);
        let store = self.relay.service.store.clone();
        Some(apart(async move {
            let read = in_time("reading the outbox", STORE_ANSWERS, store.read(&window)).await;
            (window, read)
        }))
    }

    /// Takes in a read: sorts its rows by lane, and sets aside what cannot be read.
    fn observe(&mut self, window: &Window, read: Read) {
        let (count, tail) = (read.rows.len(), window.high != i64::MAX);
        if tail {
            self.poll = if count == 0 { self.poll * 2 } else { SHORTEST_POLL };
            self.poll = self.poll.min(self.relay.service.settings.idle_poll);
            let at_once = count >= window.limit || self.woken;
            self.next_read = Instant::now() + if at_once { Duration::ZERO } else { self.poll };
        }
        let gaps = self.traffic.gaps();
        let lanes: Vec<(i64, Option<usize>)> = read.rows.iter().map(|row| (row.seq, self.lane(row))).collect();
        let sorted = self.traffic.observe(read.ended_below, &lanes, window);
        self.dirty |= count > 0 || self.traffic.gaps() != gaps;
        self.budget.spend(sorted.again);
        self.relay.counts.sent_again(sorted.again);
        if tail && count == 0 {
            self.lanes.works();
        }
        self.learn_size(&read.rows);
        for ((row, (_, lane)), _) in read.rows.into_iter().zip(lanes).zip(sorted.go).filter(|row| row.1) {
            match (lane, &row.envelope) {
                (Some(lane), _) => self.ready.entry(lane).or_default().push(row),
                (None, Err(why)) if !malote_core::planted::is("unreadable-is-dropped") => {
                    self.aside.push((row.seq, unreadable(&self.relay.service.name, row.seq, why)))
                }
                (None, _) => {}
            }
        }
    }

    fn learn_size(&mut self, rows: &[Row]) {
        let bytes: usize = rows.iter().filter_map(|row| row.envelope.as_ref().ok()).map(Envelope::size).sum();
        let Some(average) = bytes.checked_div(rows.len()) else { return };
        self.row_bytes = usize::midpoint(self.row_bytes, average);
        self.traffic.resize(READS * self.limit());
    }

    fn lane(&mut self, row: &Row) -> Option<usize> {
        row.envelope.as_ref().ok().map(|envelope| self.traffic.lane(&envelope.topic))
    }

    /// Takes in what a lane tells.
    fn hear(&mut self, lane: usize, what: What) {
        self.dirty = true;
        match what {
            What::Settled(Settled { stored, refused, .. }) => {
                self.lanes.moved(lane, stored.len() + refused.len());
                self.traffic.stored(lane, &stored);
                self.traffic.refused(lane, &refused.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
                self.aside.extend(refused);
            }
            What::Ended(None) => self.lanes.ended(lane, None),
            What::Ended(Some(why)) => {
                self.lanes.ended(lane, Some(why));
                self.traffic.doubt(lane);
            }
        }
    }
}

/// The future in the slot, or one that never resolves.
async fn slot<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    match slot {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
