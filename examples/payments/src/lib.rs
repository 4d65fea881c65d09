//! A payment across four services, by choreography.
