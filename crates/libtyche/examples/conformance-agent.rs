//! The conformance suite's agent for hosts built on libtyche: connects the export `conf` on an
//! interface, and executes the orders from its input. `conformance/README.md` defines the lines.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tyche::{Completion, Mode, Operation, Options, Request, Volume};

/// The interval between two checks for the end of the session.
const LOOK: Duration = Duration::from_millis(20);

/// The orders in progress: their names, and whether they read.
type Orders = Mutex<BTreeMap<u64, (String, bool)>>;

fn main() -> ExitCode {
    let mut options = Options::new("conf");
    let mut args = std::env::args().skip(1);
    let Some(interface) = args.next() else {
        eprintln!("usage: conformance-agent INTERFACE [KEY-FILE TARGET-KEY]");
        return ExitCode::from(2);
    };
    options.links = vec![interface];
    if let (Some(file), Some(target)) = (args.next(), args.next()) {
        (options.key, options.target_key) = (file.into(), target.parse().ok());
    }
    let (volume, orders) = (Arc::new(OnceLock::new()), Arc::new(Orders::default()));
    let (opened, known) = (Arc::clone(&volume), Arc::clone(&orders));
    thread::spawn(move || serve(options, &opened, &known));
    for (token, line) in (0..).zip(io::stdin().lock().lines().map_while(Result::ok)) {
        if line == "rejects" {
            say(&format!("rejects {}", volume.get().map_or("unknown".to_owned(), rejects)));
        } else if let Some(volume) = volume.get() {
            order(volume, &orders, token, &line);
        }
    }
    ExitCode::SUCCESS
}

/// Connects, and reports the end of each request.
fn serve(mut options: Options, opened: &OnceLock<Volume>, orders: &Orders) {
    options.mode = Mode::Queue;
    options.timeout = Duration::from_secs(30);
    let volume = match options.open() {
        Ok(volume) => opened.get_or_init(|| volume),
        Err(_) => return say("over ok"),
    };
    say("connected ok");
    let (mut done, mut is_over) = (Vec::new(), false);
    loop {
        if volume.in_flight() == 0 {
            thread::sleep(LOOK);
        } else if volume.wait(&mut done, 1, 1, LOOK).is_err() {
            return;
        }
        done.drain(..).for_each(|completion| tell(orders, &completion));
        if !is_over && volume.report().is_some_and(|report| report.over) {
            is_over = true;
            say("over ok");
        }
    }
}

fn order(volume: &Volume, orders: &Orders, token: u64, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let fill = words.get(4).and_then(|word| u8::from_str_radix(word, 16).ok());
    let (offset, len) = (number(2), number(3) as u32);
    let mut buffer = volume.arena().alloc(len.max(1) as usize);
    let operation = match words.get(1) {
        Some(&"read") => Operation::Read,
        Some(&"write") => Operation::Write { fua: false },
        _ => Operation::Flush,
    };
    if let (Some(buffer), Some(fill)) = (&mut buffer, fill) {
        buffer.fill(fill);
    }
    let buffer = buffer.filter(|_| operation.has_data());
    let is_read = operation == Operation::Read;
    let name = words.first().copied().unwrap_or_default().to_owned();
    let mut known = orders.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert(token, (name.clone(), is_read));
    drop(known);
    let request = Request { operation, offset, len, buffer };
    if volume.submit(request, token).is_err() {
        say(&format!("{name} error"));
    }
}

fn tell(orders: &Orders, completion: &Completion) {
    let mut known = orders.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((name, is_read)) = known.remove(&completion.token) else { return };
    say(&match (&completion.result, &completion.buffer) {
        (Ok(()), Some(buffer)) if is_read => format!("{name} ok {}", runs(buffer)),
        (Ok(()), _) => format!("{name} ok"),
        (Err(_), _) => format!("{name} error"),
    });
}

/// Bytes in hexadecimal, `aa*512` for 512 in a row.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{:02x}*{}", run[0], run.len())).collect::<Vec<_>>().join(" ")
}

/// The counters as JSON.
fn rejects(volume: &Volume) -> String {
    let Some(report) = volume.report() else { return "unknown".to_owned() };
    let count = |(reason, count): (_, u64)| format!("\"{reason}\": {count}");
    format!("{{{}}}", report.rejects.iter().map(count).collect::<Vec<_>>().join(", "))
}

/// Prints a line for the suite.
fn say(line: &str) {
    let mut output = io::stdout().lock();
    // If the reader is gone, the input ends too.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
