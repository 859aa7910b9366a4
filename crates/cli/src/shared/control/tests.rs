//! Answers at control sockets, and readers that do not read them.

use super::*;

#[test]
fn an_answer_is_what_was_asked_for_or_an_error() {
    let (target, export) = ("store1".into(), "vm1".into());
    let resized = ExportResized { target, export, size: 512, warnings: Vec::new() };
    let line = |answer| serde_json::to_string(&answer).unwrap();
    let answer = line(ControlAnswer::Resized(resized));
    assert_eq!(parse_answer::<ExportResized>(&answer).unwrap().unwrap().size, 512);
    assert!(parse_answer::<Done>(&line(ControlAnswer::Done {})).unwrap().is_ok());
    let refused = line(ControlAnswer::refused(Code::Device, "it is in use"));
    let error = parse_answer::<Done>(&refused).unwrap().err().unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::Device, "it is in use"));
    // Of other versions.
    for unknown in [r#"{"error":"no"}"#, r#"{"error":"no","code":"tired","why":1}"#] {
        let error = parse_answer::<Done>(unknown).unwrap().err().unwrap();
        assert_eq!((error.code, error.message.as_str()), (Code::Other, "no"));
    }
}

#[test]
fn readers_who_ask_and_do_not_read_keep_nobody_out() {
    let (readers, begun) = (Places::default(), Instant::now());
    let come = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let guest = Guest::Reader(readers.admit(ours).ok()?);
        std::thread::spawn(move || {
            // More than a socket takes for a client that does not read.
            let text = "a".repeat(4 << 20);
            let long =
                |_: SessionRequest, _: &Asker<'_>| ControlAnswer::refused(Code::Other, &text);
            answer_one(&guest, long)
        });
        Some(theirs)
    };
    let ask = |mut stream: UnixStream| {
        stream.write_all(b"{\"request\":\"report\"}\n").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let _unread: Vec<_> = (0..PLACES).map(|_| ask(come().unwrap())).collect();
    let next = std::iter::repeat_with(|| {
        come().or_else(|| {
            std::thread::yield_now();
            None
        })
    });
    ask(next.flatten().next().unwrap());
    assert!(begun.elapsed() < ANSWER_TIMEOUT, "they had to go before: {:?}", begun.elapsed());
}
