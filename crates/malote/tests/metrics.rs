//! The table of metrics holds for what is recorded, rendered, documented, alarmed on and drawn.
#![allow(missing_docs)]

use malote::telemetry::metrics::{ALL, Kind, Metric, find, install};
use malote_testkit::servers::promtool;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Words of letters, digits and what `also` names that begin so.
fn words<'t>(text: &'t str, start: &str, also: &str) -> BTreeSet<&'t str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
    text.split(|c| !is_part(c)).filter(|word| word.starts_with(start)).collect()
}

/// The sources of the library's crates, without the table itself.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add(&path, text);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("metrics/table.rs") {
                text.push_str(&fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    let mut text = String::new();
    for name in ["malote", "malote-core", "malote-sqlite", "malote-postgres", "malote-kafka"] {
        add(&root().join("crates").join(name).join("src"), &mut text);
    }
    text
}

#[test]
fn what_is_recorded_is_in_the_table_and_the_other_way_round() {
    let sources = sources();
    let calls = ["counter!(", "gauge!(", "histogram!(", "gauge("];
    let recorded: BTreeSet<&str> = calls
        .iter()
        .flat_map(|call| sources.split(call).skip(1))
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .collect();
    for name in &recorded {
        assert!(find(name).is_some(), "{name} is recorded and not in the table");
    }
    for metric in ALL {
        assert!(recorded.contains(metric.name), "{} is in the table and nobody records it", metric.name);
    }
}

#[test]
fn labels_have_few_values() {
    let few = ["service", "consumer", "by", "topic", "kind", "task", "version", "definition", "status", "error.type"];
    for Metric { name, labels, help, .. } in ALL {
        for label in *labels {
            let of_the_conventions = label.starts_with("messaging.") && !label.contains("message.");
            assert!(few.contains(label) || of_the_conventions, "{name} has a label {label}");
        }
        assert!(help.ends_with('.'), "{name}: {help}");
    }
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len(), "a metric is there twice");
}

#[test]
fn prometheus_reads_the_names_and_kinds_that_the_table_says() {
    install().expect("nobody else's recorder");
    for metric in ALL {
        let labels: Vec<(&str, &str)> = metric.labels.iter().map(|label| (*label, "x")).collect();
        match metric.kind {
            Kind::Counter => metrics::counter!(metric.name, &labels).increment(3),
            Kind::Gauge => metrics::gauge!(metric.name, &labels).set(2.5),
            Kind::Histogram(_) => metrics::histogram!(metric.name, &labels).record(0.03),
        }
    }
    let text = install().expect("the same one").render();
    for metric in ALL {
        let name = metric.prometheus();
        assert!(text.contains(&format!("# TYPE {name} {}\n", metric.kind.name())), "{name} in {text}");
        assert!(text.contains(&format!("# HELP {name} {}\n", metric.help)), "{name} in {text}");
        for label in metric.prometheus_labels() {
            assert!(text.contains(&format!("{label}=\"x\"")), "{label} of {name} in {text}");
        }
        if let Kind::Histogram(bounds) = metric.kind {
            let line = format!("{name}_bucket{{");
            let buckets = text.lines().filter(|l| l.starts_with(&line)).count();
            assert_eq!(buckets, bounds.len() + 1, "{name} in {text}");
        }
    }
    assert!(text.contains(concat!("malote_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n")), "{text}");
}

/// Rewrites the page with `MALOTE_WRITE_DOCS=1`.
#[test]
fn the_page_shows_the_table() {
    let path = "docs/operating/metrics.md";
    let page = read(path);
    let (begin, end) = ("table.rs -->\n", "<!-- end of the table -->");
    let (before, rest) = page.split_once(begin).expect("a beginning");
    let (_, after) = rest.split_once(end).expect("an end");
    let mut table =
        String::from("\n| at Prometheus | by OTLP | kind | labels | what it says |\n|---|---|---|---|---|\n");
    for metric in ALL {
        let (name, own) = (metric.prometheus(), metric.name);
        let otlp = if name == own { String::new() } else { format!("`{own}`") };
        let labels: Vec<_> = metric.prometheus_labels().iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (metric.kind.name(), labels.join(", "));
        table.push_str(&format!("| `{name}` | {otlp} | {kind} | {labels} | {} |\n", metric.help));
    }
    let expected = format!("{before}{begin}{table}\n{end}{after}");
    if std::env::var("MALOTE_WRITE_DOCS").is_ok_and(|write| write == "1") {
        fs::write(root().join(path), &expected).expect("can be written");
    } else {
        assert!(page == expected, "{path} is not as the table: run this test with MALOTE_WRITE_DOCS=1");
    }
}

/// The names under which Prometheus keeps what the table holds.
fn series() -> BTreeSet<String> {
    let series = ALL.iter().flat_map(|metric| {
        let name = metric.prometheus();
        match metric.kind {
            Kind::Histogram(_) => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name],
        }
    });
    series.collect()
}

#[test]
fn alarms_and_pictures_speak_of_metrics_that_exist() {
    let series = series();
    let files =
        ["deploy/prometheus/malote.rules.yml", "deploy/prometheus/malote.rules.test.yml", "deploy/grafana/malote.json"];
    for file in files {
        let text = read(file);
        // names of series, not `malote-flow`, `malote.rules.yml` or `MaloteOutboxLag`
        let named = words(&text, "malote_", "_").into_iter().chain(words(&text, "messaging_", "_"));
        let named: Vec<&str> = named.filter(|word| !is_label(word)).collect();
        assert!(!named.is_empty(), "{file} names no metric");
        for name in named {
            assert!(series.contains(name), "{file} speaks of {name}, which does not exist");
        }
    }
}

fn is_label(word: &str) -> bool {
    ALL.iter().any(|metric| metric.prometheus_labels().iter().any(|label| label == word))
}

#[test]
fn each_alarm_has_its_paragraph() {
    let (rules, page) = (read("deploy/prometheus/malote.rules.yml"), read("docs/operating/alarms.md"));
    let mut paragraphs: BTreeMap<&str, &str> = page
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').expect("a heading and a paragraph"))
        .collect();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().expect("a name");
        let paragraph = paragraphs.remove(name).unwrap_or_else(|| panic!("{name} has no paragraph"));
        let severity = rule.split("severity: ").nth(1).and_then(|rest| rest.lines().next()).expect("a severity");
        assert!(paragraph.contains(&format!("*{severity}.*")), "{name} is {severity}, its paragraph says otherwise");
        for part in ["**Look:**", "**Do:**"] {
            assert!(paragraph.contains(part), "{name} does not say {part}");
        }
        let runbook = format!("runbook: docs/operating/alarms.md#{}\n", name.to_lowercase());
        assert!(rule.contains(&runbook), "{name} does not link to its paragraph");
        assert!(rule.contains("summary: "), "{name} has no summary");
        let tests = read("deploy/prometheus/malote.rules.test.yml");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} is not tested");
    }
    assert!(paragraphs.is_empty(), "no such alarms: {:?}", paragraphs.keys());
}

#[test]
fn the_alarms_sound_when_they_must_and_only_then() {
    let folder = root().join("deploy/prometheus");
    let Some(checked) = promtool(&folder, &["check", "rules", "malote.rules.yml"]) else { return };
    assert!(checked.contains("SUCCESS"), "{checked}");
    promtool(&folder, &["test", "rules", "malote.rules.test.yml"]);
}
