//! After a death: what may have killed the process goes on together, and alone only what is blamed.

use super::{common::*, provider::*, turns::*};
use malote::{Event, inspect::Filter};

crate::on_each_store!(after_a_death_calls_go_on_side_by_side, what_was_under_way_at_a_second_death_is_alone,);

impl<S: TestStore> Scene<S> {
    /// A process that is no more did not give back the partition of this key.
    async fn holder_died(&self, key: &str) {
        let (topic, partition) = (Ping::topic(), partition_of(key));
        let row = format!("('caller', '{topic}', {partition}, '00000000-0000-0000-0000-000000000001')");
        self.caller
            .execute(&format!("insert into malote.custody (consumer, topic, partition, incarnation) values {row}"))
            .await;
    }

    /// Another had begun with all that has been asked so far, and died, too.
    async fn another_died(&self) {
        let asked = self.asker.outbox(&Filter::default(), 100).await.unwrap();
        let ids: Vec<String> = asked.into_iter().map(|row| row.id).collect();
        self.caller.runs_begin("caller", &ids).await.unwrap();
    }

    async fn no_run_is_left(&self) {
        self.caller.until_count("select count(*) from malote.run", 0).await;
    }
}

async fn after_a_death_calls_go_on_side_by_side<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    scene.holder_died("slow").await;
    let provider = Provider::holding(0..3);
    let running = scene.start(scene.caller(&provider)).await;
    let keys = (0..).map(|n| format!("key{n}")).filter(|key| partition_of(key) == partition_of("slow"));
    ask(&scene.asker, keys.zip(0..3).map(|(key, n)| ping(&key, n))).await;
    for n in 0..3 {
        provider.until_begun(n).await;
    }
    assert_eq!(scene.caller.count("select count(*) from malote.run").await, 3, "counted before they begin");
    provider.let_all_go();
    scene.heard.until(|all| all.len() == 3).await;
    scene.no_run_is_left().await;
    running.stop().await;
}

async fn what_was_under_way_at_a_second_death_is_alone<S: TestStore>() {
    let Some(scene) = Scene::<S>::fresh().await else { return };
    scene.holder_died("slow").await;
    ask(&scene.asker, [ping("slow", 0), ping("slow", 1), ping(&beside("slow"), 2), ping("slow", 3)]).await;
    scene.another_died().await;
    let provider = Provider::holding([0]);
    let running = scene.start(scene.caller(&provider)).await;
    provider.until_begun(0).await;
    // what nobody blames goes on meanwhile
    let other = elsewhere("slow");
    for n in 100..110 {
        scene.ask([ping(&other, n)]).await;
        scene.heard(n).await;
    }
    assert_eq!(provider.times(2), 0);
    provider.let_all_go();
    scene.heard.until(|all| all.len() == 14).await;
    scene.no_run_is_left().await;
    running.stop().await;
    let slow: Vec<i64> = numbers(&scene.heard.all()).into_iter().filter(|n| [0, 1, 3].contains(n)).collect();
    assert_eq!(slow, [0, 1, 3]);
}
