//! A folder with a file for each notice: what a demonstration shows instead of sending mails.

use malote::{IdempotencyKey, planted};
use std::{io, path::PathBuf};
use tokio::{fs, io::AsyncWriteExt};
use uuid::Uuid;

/// The folder.
#[derive(Clone, Debug)]
pub struct Mailbox {
    folder: PathBuf,
    of: &'static str,
}

impl Mailbox {
    /// In a folder; `of` is the sender's place in the Message-ID, such as `payments.malote`.
    pub fn new(folder: PathBuf, of: &'static str) -> Self {
        Self { folder, of }
    }

    /// Puts a notice into it, whole or not at all. The file's name is the key, so a repeat replaces it.
    pub async fn put(&self, key: &IdempotencyKey, subject: &str, body: &str) -> io::Result<()> {
        fs::create_dir_all(&self.folder).await?;
        let name = if planted::is("mailbox-key") { Uuid::now_v7().to_string() } else { key.0.clone() };
        let (half, whole) = (self.folder.join(format!(".{name}")), self.folder.join(format!("{name}.txt")));
        let text = format!("Message-ID: <{}@{}>\nSubject: {subject}\n\n{body}\n", key.0, self.of);
        let mut file = fs::File::create(&half).await?;
        file.write_all(text.as_bytes()).await?;
        file.sync_data().await?;
        fs::rename(half, whole).await
    }
}
