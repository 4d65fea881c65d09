//! How each kind of row is shown to people.

use crate::out::{Cell, Color, Listed, age, maybe, plain, text, time};
use malote::inspect::{AuditRow, DeadRow, Finding, Grade, OutboxRow, ParkedRow, Refused, RelayStatus, ScheduledRow};
use malote::saga::{SagaRow, Status};

impl Listed for OutboxRow {
    const HEAD: &'static [&'static str] = &["seq", "event", "type", "topic", "key", "written", "bytes", "published"];
    const NONE: &'static str = "no rows in the outbox";
    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(self.seq),
            text(&self.id),
            text(&self.kind),
            text(&self.topic),
            text(&self.key),
            Cell::new(time(self.created_at)),
            Cell::new(self.payload_bytes),
            Cell::new(if self.published { "yes" } else { "no" }),
        ]
    }
}

impl Listed for ParkedRow {
    const HEAD: &'static [&'static str] =
        &["consumer", "topic", "key", "message", "type", "attempts", "next attempt", "class", "error"];
    const NONE: &'static str = "nothing is parked";
    fn cells(&self) -> Vec<Cell> {
        let next = match (self.held, self.due_at) {
            (true, _) => Cell::new("held").fg(Color::Red),
            (false, Some(due)) => Cell::new(time(due)),
            (false, None) => Cell::new("waits behind"),
        };
        vec![
            text(&self.consumer),
            text(&self.lane.topic),
            text(&self.lane.key),
            text(&self.what),
            maybe(self.kind.as_deref()),
            Cell::new(self.attempts),
            next,
            maybe(self.class.as_deref()),
            maybe(self.error.as_deref()),
        ]
    }
}

impl Listed for DeadRow {
    const HEAD: &'static [&'static str] =
        &["id", "by", "type", "topic", "key", "class", "attempts", "given up", "newer", "key is", "reason"];
    const NONE: &'static str = "no dead letters";
    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(self.id),
            text(&self.by),
            maybe(self.kind.as_deref()),
            text(&self.topic),
            maybe(self.key.as_deref()),
            text(&self.class),
            Cell::new(self.attempts),
            Cell::new(time(self.last_at)),
            Cell::new(self.newer),
            if self.holds_key { Cell::new("held").fg(Color::Red) } else { Cell::new("free") },
            text(&self.reason),
        ]
    }
}

impl Listed for ScheduledRow {
    const HEAD: &'static [&'static str] = &["event", "type", "topic", "key", "due"];
    const NONE: &'static str = "nothing is scheduled";
    fn cells(&self) -> Vec<Cell> {
        let due = Cell::new(time(self.due_at));
        vec![text(&self.id), text(&self.kind), text(&self.topic), text(&self.key), due]
    }
}

impl Listed for AuditRow {
    const HEAD: &'static [&'static str] = &["at", "actor", "act", "target", "reason", "outcome"];
    const NONE: &'static str = "nobody has done anything";
    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(time(self.at)),
            text(&self.actor),
            text(&self.act),
            text(&self.target),
            text(&self.reason),
            text(&self.outcome),
        ]
    }
}

impl Listed for RelayStatus {
    const HEAD: &'static [&'static str] = &["relay", "leader", "lease left", "epoch", "high", "gaps"];
    const NONE: &'static str = "no relay has run yet";
    fn cells(&self) -> Vec<Cell> {
        let held = self.lease_seconds.filter(|left| *left > 0.0);
        vec![
            text(&self.name),
            maybe(self.incarnation.filter(|_| held.is_some()).map(|who| who.to_string())),
            maybe(held.map(age)),
            Cell::new(self.epoch),
            Cell::new(self.high),
            Cell::new(self.gaps),
        ]
    }
}

impl Listed for SagaRow {
    const HEAD: &'static [&'static str] =
        &["id", "saga", "version", "status", "waits for", "began", "changed", "because"];
    const NONE: &'static str = "no sagas";
    fn cells(&self) -> Vec<Cell> {
        let status = Cell::new(self.status.as_str());
        let steps: Vec<_> = self.steps.iter().map(ToString::to_string).collect();
        vec![
            Cell::new(self.id),
            text(&self.definition),
            Cell::new(self.version),
            if self.status == Status::Stuck { status.fg(Color::Red) } else { status },
            maybe((!steps.is_empty()).then(|| steps.join(", "))),
            Cell::new(time(self.started_at)),
            Cell::new(time(self.changed_at)),
            maybe(self.reason.as_deref()),
        ]
    }
}

impl Listed for Finding {
    const HEAD: &'static [&'static str] = &["grade", "what", "finding"];
    const NONE: &'static str = "nothing was found";
    fn cells(&self) -> Vec<Cell> {
        let grade = match self.grade {
            Grade::Fine => Cell::new("fine").fg(Color::Green),
            Grade::Warning => Cell::new("warning").fg(Color::Yellow),
            Grade::Fault => Cell::new("fault").fg(Color::Red),
        };
        // cut, it would be of no help
        vec![grade, text(&self.what), Cell::new(plain(&self.says))]
    }
}

impl Listed for Refused {
    const HEAD: &'static [&'static str] = &["id", "not done because"];
    const NONE: &'static str = "nothing was refused";
    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(self.id), Cell::new(plain(&self.why))]
    }
}
