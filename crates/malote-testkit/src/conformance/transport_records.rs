//! Records: their order, their bytes, and what becomes of those that cannot be taken.

use super::transport::*;
use bytes::Bytes;
use futures::future::join_all;
use malote_core::{Report, Transport, wire};

/// The next batch is sent before the reports of the last are there, and order per key holds.
pub async fn order_is_kept_per_key_with_batches_under_way(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("order");
    ensure(&transport, &[&topic]).await;
    let mut publisher = transport.publisher().await.expect("a publisher");
    let mut under_way = Vec::new();
    for batch in 0..20 {
        let envelopes = (0..40).map(|n| envelope(&topic, &format!("key {}", n % 8), format!("{batch:02}.{n:02}")));
        under_way.push(publisher.send(envelopes.collect()).await.expect("the batch is taken"));
    }
    for reports in join_all(under_way).await {
        assert_eq!(reports, vec![Report::Stored; 40]);
    }
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    let all = take(member.as_mut(), 800, &features).await;
    let by_key = by_key(&all);
    assert_eq!(by_key.len(), 8);
    for (key, payloads) in by_key {
        assert_eq!(payloads.len(), 100, "{key}");
        assert!(payloads.is_sorted(), "{key}: {payloads:?}");
    }
    member.close().await;
}

/// What a broker or a client may be tempted to touch: bytes that are not text, nothing at all, a lot.
pub async fn bytes_and_headers_come_out_as_they_went_in(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("bytes");
    ensure(&transport, &[&topic]).await;
    let large: Vec<u8> = (0..500_000u32).map(|n| n as u8).collect();
    let payloads: [Vec<u8>; 4] = [b"".to_vec(), b"\x00\xff\xfe\r\n".to_vec(), "{\"a\": \"ação\"}".into(), large];
    let sent = payloads.map(|payload| {
        let mut envelope = envelope(&topic, "chave-ação \u{1f600}", payload);
        envelope.headers =
            vec![("dataschema".into(), "https://example.test/a?b=c".into()), ("x".into(), String::new())];
        envelope.correlation_id = Some("naïve \"conversation\"".into());
        envelope.sequence = Some(7);
        envelope
    });
    publish(&transport, sent.to_vec()).await;
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    let came = take(member.as_mut(), sent.len(), &features).await;
    for (delivery, sent) in came.iter().zip(&sent) {
        assert_eq!(delivery.record.key.as_deref(), Some(sent.key.as_bytes()));
        assert_eq!(delivery.record.headers, wire::encode(sent).headers);
        let whole = delivery.record.payload.as_ref() == Some(&sent.payload);
        assert!(whole, "a payload of {} bytes was changed", sent.payload.len());
    }
    assert_eq!(opened(&came), sent);
    member.close().await;
}

/// Integers above 2^53 and long fractions are bytes on the way.
pub async fn ac_073_large_integers_keep_their_digits(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("digits");
    ensure(&transport, &[&topic]).await;
    let payload = Bytes::from_static(br#"{"n":9007199254740993,  "d":0.123456789012345678901234567890,"s":"\u0000"}"#);
    publish(&transport, vec![envelope(&topic, "9007199254740993", payload.clone())]).await;
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    let came = opened(&take(member.as_mut(), 1, &features).await);
    assert_eq!((&came[0].payload, came[0].key.as_str()), (&payload, "9007199254740993"));
    member.close().await;
}

/// The refusal says why, is told for that record only, and its neighbours are stored.
pub async fn a_record_that_is_too_large_is_refused_alone(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("large");
    ensure(&transport, &[&topic]).await;
    let mut large = envelope(&topic, "b", "");
    large.payload = vec![b'x'; features.too_large].into();
    let mut publisher = transport.publisher().await.expect("a publisher");
    let batch = vec![envelope(&topic, "a", "1"), large, envelope(&topic, "c", "3")];
    let told = reports(publisher.as_mut(), batch).await;
    assert!(matches!(&told[..], [Report::Stored, Report::Refused(why), Report::Stored] if !why.is_empty()), "{told:?}");
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    assert_eq!(sorted(&take(member.as_mut(), 2, &features).await), ["1", "3"]);
    member.close().await;
}

/// A topic exists because somebody asked for it with a partition count, never by accident.
pub async fn a_topic_is_not_made_by_publishing(bench: &impl Bench) {
    if !bench.features().knows_missing_topics {
        return;
    }
    let transport = bench.open().await;
    let mut publisher = transport.publisher().await.expect("a publisher");
    let missing = fresh("missing");
    let told = reports(publisher.as_mut(), vec![envelope(&missing, "a", "1")]).await;
    let named = |why: &str| why.contains(&missing) || why.to_lowercase().contains("topic");
    assert!(matches!(&told[..], [Report::Refused(why) | Report::Unknown(why)] if named(why)), "{told:?}");
}

/// Making topics is repeated at each start.
pub async fn making_a_topic_twice_changes_nothing(bench: &impl Bench) {
    let (transport, features) = (bench.open().await, bench.features());
    let topic = fresh("twice");
    ensure(&transport, &[&topic]).await;
    publish(&transport, numbers(&topic, 0..10)).await;
    ensure(&bench.open().await, &[&topic, &topic]).await;
    publish(&transport, numbers(&topic, 10..20)).await;
    let mut member = join(&transport, &fresh("group"), &[&topic]).await;
    assert_eq!(sorted(&take(member.as_mut(), 20, &features).await), numbers_as_text(0..20));
    member.close().await;
}
