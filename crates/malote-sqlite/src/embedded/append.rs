//! Topics, and what is appended to them.

use super::{
    frame, log,
    writer::{Job, Open},
};
use bytes::Bytes;
use malote_core::{RawRecord, Report, partition, planted};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::oneshot;

/// Topics by name.
pub(super) type Topics = HashMap<String, Arc<Topic>>;

/// A topic's number, and those of its partitions in order.
pub(super) struct Topic {
    pub(super) id: i64,
    pub(super) partitions: Vec<i64>,
}

/// A record on its way in.
pub(super) struct Record {
    topic: String,
    key: Option<Bytes>,
    headers: Vec<u8>,
    payload: Option<Bytes>,
}

impl Record {
    pub(super) fn of(topic: &str, record: RawRecord) -> Self {
        let headers = frame::write(&record.headers);
        Self { topic: topic.to_owned(), key: record.key, headers, payload: record.payload }
    }

    fn size(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        length(&self.key) + self.headers.len() + length(&self.payload)
    }
}

/// A batch of one publisher.
pub(super) struct Append {
    records: Vec<Record>,
    largest: usize,
    reports: Vec<Report>,
    reply: oneshot::Sender<Vec<Report>>,
}

impl Append {
    pub(super) fn new(records: Vec<Record>, largest: usize, reply: oneshot::Sender<Vec<Report>>) -> Self {
        Self { reports: Vec::with_capacity(records.len()), records, largest, reply }
    }
}

impl Job for Append {
    fn run(&mut self, log: &mut Open<'_>) -> rusqlite::Result<()> {
        self.reports.clear();
        for record in &self.records {
            let report = append(log, record, self.largest)?;
            self.reports.push(report);
        }
        if planted::is("report-before-commit") {
            let (nobody, _) = oneshot::channel();
            let reply = std::mem::replace(&mut self.reply, nobody);
            let _ = reply.send(self.reports.clone());
        }
        Ok(())
    }

    fn over(self: Box<Self>, committed: Result<(), &str>) {
        let reports = match committed {
            Ok(()) => self.reports,
            Err(reason) => vec![Report::Unknown(reason.into()); self.records.len()],
        };
        // the publisher may be gone
        let _ = self.reply.send(reports);
    }

    fn size(&self) -> usize {
        self.records.iter().map(Record::size).sum()
    }
}

fn append(log: &mut Open<'_>, record: &Record, largest: usize) -> rusqlite::Result<Report> {
    let size = record.size();
    if size > largest && !planted::is("log-takes-any-size") {
        return Ok(Report::Refused(format!("the record has {size} bytes, the log takes {largest}")));
    }
    let Some(topic) = topic(log, &record.topic)? else {
        return Ok(Report::Refused(format!("there is no topic {:?}", record.topic)));
    };
    let number = partition::of_key(record.key.as_deref().unwrap_or_default(), topic.partitions.len() as u32);
    let partition = topic.partitions[number as usize];
    let offset = next(log, partition)?;
    let now = now(log)?;
    log.run(
        include_str!("../../sql/embedded/insert.sql"),
        (log::at(partition, offset), now, record.key.as_deref(), &record.headers, record.payload.as_deref()),
    )?;
    log.next.insert(partition, offset + 1);
    log.changed.topics.insert(topic.id);
    Ok(Report::Stored)
}

/// The next offset of a partition. Other processes append too, so it is read in each transaction.
fn next(log: &Open<'_>, partition: i64) -> rusqlite::Result<i64> {
    match log.next.get(&partition) {
        Some(next) => Ok(*next),
        None => {
            let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/next.sql"))?;
            statement.query_row([partition], |row| row.get(0))
        }
    }
}

fn now(log: &mut Open<'_>) -> rusqlite::Result<i64> {
    if let Some(now) = log.now {
        return Ok(now);
    }
    let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/now.sql"))?;
    let now = statement.query_row([], |row| row.get(0))?;
    log.now = Some(now);
    Ok(now)
}

/// A topic, if there is one.
pub(super) fn topic(log: &mut Open<'_>, name: &str) -> rusqlite::Result<Option<Arc<Topic>>> {
    if let Some(topic) = log.topics.get(name) {
        return Ok(Some(topic.clone()));
    }
    let mut statement = log.connection.prepare_cached(include_str!("../../sql/embedded/topic.sql"))?;
    let rows = statement.query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows = rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let Some(&(id, _)) = rows.first() else { return Ok(None) };
    let topic = Arc::new(Topic { id, partitions: rows.into_iter().map(|row| row.1).collect() });
    log.topics.insert(name.to_owned(), topic.clone());
    Ok(Some(topic))
}

/// A topic, made now if there is none.
pub(super) fn ensure_topic(log: &mut Open<'_>, name: &str, partitions: u32) -> rusqlite::Result<Arc<Topic>> {
    if let Some(topic) = topic(log, name)? {
        return Ok(topic);
    }
    log.run(include_str!("../../sql/embedded/create_topic.sql"), (name, partitions))?;
    let id = log.connection.last_insert_rowid();
    let mut numbers = Vec::new();
    for number in 0..partitions {
        log.run(include_str!("../../sql/embedded/create_partition.sql"), (id, number))?;
        numbers.push(log.connection.last_insert_rowid());
    }
    let topic = Arc::new(Topic { id, partitions: numbers });
    log.topics.insert(name.to_owned(), topic.clone());
    Ok(topic)
}
