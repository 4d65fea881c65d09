//! Notices over a real channel: what goes out, under which key, and what happens when it is refused.

mod support;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use payments::app::Name;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use support::{Services, Store, until};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// What a receiver got, and what it answers, in order; the last answer stays.
#[derive(Clone, Default)]
struct Receiver {
    got: Arc<Mutex<Vec<(String, Value)>>>,
    answers: Vec<u16>,
}

impl Receiver {
    fn got(&self) -> Vec<(String, Value)> {
        self.got.lock().expect("whole").clone()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, Json(notice): Json<Value>) -> StatusCode {
    let key = headers["idempotency-key"].to_str().expect("text").to_owned();
    let mut got = receiver.got.lock().expect("whole");
    let answer = receiver.answers[got.len().min(receiver.answers.len() - 1)];
    got.push((key, notice));
    StatusCode::from_u16(answer).expect("a status")
}

/// A webhook that answers so; its address.
async fn webhook(answers: &[u16]) -> (Receiver, String) {
    let receiver = Receiver { answers: answers.to_vec(), ..Receiver::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/notices", listener.local_addr().expect("an address"));
    let routes = Router::new().route("/notices", post(receive)).with_state(receiver.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (receiver, address)
}

#[tokio::test]
async fn a_webhook_that_fails_for_a_while_is_called_again_under_the_same_key() {
    let (receiver, address) = webhook(&[503, 429, 500, 204]).await;
    let services = Services::run(Store::Files, &Name::ALL, &[("MALOTE_WEBHOOK", &address)]).await;
    let id = services.client.accepted(999_999_999, "carol", "bob").await;
    services.client.ended(&id).await;
    let books = services.books().await;
    books.quiet(1).await;
    books.check(1).await;
    let got = receiver.got();
    assert_eq!(got.len(), 4);
    assert!(got.iter().all(|call| *call == got[0]), "{got:?}");
    assert_eq!(got[0].1["payment"], id);
    assert_eq!(books.notification.texts("SELECT key FROM notifications").await, [got[0].0.clone()]);
}

#[tokio::test]
async fn a_webhook_that_refuses_is_not_called_again_and_the_notice_is_set_aside() {
    let (receiver, address) = webhook(&[400, 204]).await;
    let services = Services::run(Store::Files, &Name::ALL, &[("MALOTE_WEBHOOK", &address)]).await;
    services.client.accepted(999_999_999, "carol", "bob").await;
    let book = services.book(Name::Notification).await;
    let reason = until("it is set aside", || async { book.texts("SELECT reason FROM malote.dead").await.pop() }).await;
    assert!(reason.contains("400") && !reason.contains(&address), "{reason}");
    // the next one goes out
    services.client.accepted(999_999_999, "carol", "bob").await;
    until("the next notice is sent", || async { (receiver.got().len() == 2).then_some(()) }).await;
}

/// Takes mails as a mail server does; what came as data.
async fn mail_server() -> (Arc<Mutex<Vec<String>>>, String) {
    let mails = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let kept = mails.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take_mail(stream, kept.clone()));
        }
    });
    (mails, address)
}

async fn take_mail(stream: TcpStream, mails: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"220 here\r\n").await?;
    while let Some(line) = lines.next_line().await? {
        let answer: &[u8] = match line.split([' ', ':']).next().unwrap_or_default() {
            "DATA" => {
                write.write_all(b"354 go on\r\n").await?;
                let mut mail = String::new();
                while let Some(line) = lines.next_line().await?.filter(|line| line != ".") {
                    mail.push_str(&line);
                    mail.push('\n');
                }
                mails.lock().expect("whole").push(mail);
                b"250 taken\r\n"
            }
            "QUIT" => b"221 bye\r\n",
            _ => b"250 fine\r\n",
        };
        write.write_all(answer).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_mail_carries_the_key_as_its_message_id() {
    let (mails, address) = mail_server().await;
    let services =
        Services::run(Store::Files, &Name::ALL, &[("MALOTE_SMTP", &address), ("MALOTE_MAIL_TO", "carol@localhost")])
            .await;
    let id = services.client.accepted(999_999_999, "carol", "bob").await;
    services.client.ended(&id).await;
    let books = services.books().await;
    books.quiet(1).await;
    books.check(1).await;
    let mails = mails.lock().expect("whole").clone();
    let key = books.notification.texts("SELECT key FROM notifications").await.remove(0);
    assert_eq!(mails.len(), 1);
    let text = mails[0].replace("=\n", "");
    for said in [&*format!("Message-ID: <{key}@"), "To: carol@localhost", "9999999.99 from carol to bob", &id] {
        assert!(text.contains(said), "{said} is not in {text}");
    }
}
