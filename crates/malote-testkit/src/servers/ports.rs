//! Ports that stay ours.
//!
//! The usual trick (bind to port 0, close, use the number) hands out ports of
//! the range that the kernel also gives to outgoing connections: a server that
//! is restarted on "its" port may find a client sitting there. So ports come
//! from below that range, and a locked file marks each one for as long as its
//! server exists, running or not.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use super::scratch;

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// A free TCP port on 127.0.0.1, kept from other test runs until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // Holding the lock is all it is for.
    _claim: File,
}

impl Port {
    /// Finds and claims a free port.
    ///
    /// # Errors
    /// When no port is free, or the folder of claims cannot be written.
    pub fn claim() -> io::Result<Self> {
        let folder = scratch::base().join("malote-ports");
        fs::create_dir_all(&folder)?;
        for _ in 0..1000 {
            let number = fastrand::u16(FIRST..=LAST);
            let claim = File::create(folder.join(number.to_string()))?;
            if claim.try_lock().is_ok() && is_free(number) {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(io::Error::other(format!("no free port between {FIRST} and {LAST}")))
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
}
