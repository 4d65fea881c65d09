//! malote over Apache Kafka.
