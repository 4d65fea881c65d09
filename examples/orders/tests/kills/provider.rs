//! The payment provider in a process of its own: this test's binary once more.

use provider::{Book, Provider, router, serve};
use std::path::Path;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves at an address, from a book in a file, until it is killed.
pub async fn run(words: &[String]) {
    let [address, book] = words else { panic!("{words:?}") };
    let book = Book::open(Path::new(book)).await.expect("its book");
    let listener = TcpListener::bind(address).await.expect("its address");
    serve(listener, router(Provider::new(book)), CancellationToken::new()).await.expect("serves");
}
