use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use uuid::Uuid;

use super::*;
use crate::commands::top::view::Asked;
use crate::shared::report::{
    ExportRates, HostRates, LinkRates, OperationRates, RequestRates, TargetRates, TrafficRates,
};

fn requests(reads: f64) -> RequestRates {
    let operation =
        OperationRates { per_s: reads, bytes_per_s: reads * 4096.0, ..Default::default() };
    let (mean_us, p99_us) = (Some(85.0), Some(1_234.0));
    RequestRates { interval_s: 1.0, reads: operation, mean_us, p99_us, ..Default::default() }
}

fn session(number: u64, export: &str, reads: f64) -> SessionRates {
    let traffic = TrafficRates { received_bytes_per_s: reads * 4200.0, ..Default::default() };
    let link = LinkRates {
        link: "eth1".to_owned(),
        live: true,
        traffic: Some(traffic),
        rtt_us: Some(40),
        frame_len: Some(9014),
        congestion_window: 64,
        ..LinkRates::default()
    };
    let down = LinkRates {
        link: "eth2".to_owned(),
        problem: Some("it is down".to_owned()),
        ..LinkRates::default()
    };
    SessionRates {
        session: Uuid::from_u128(number.into()),
        export: export.to_owned(),
        target: Some("store1".to_owned()),
        device: format!("/dev/ublkb{number}"),
        state: StateName::Live,
        requests: Some(requests(reads)),
        in_flight: 32,
        retransmitted_per_s: Some(0.0),
        lost_per_s: Some(0.0),
        links: vec![link, down],
        queues: vec![reads / 2.0, reads / 2.0],
        ..SessionRates::default()
    }
}

fn machine() -> TopReport {
    let lost = SessionRates {
        state: StateName::Lost,
        problem: Some("the target does not answer".to_owned()),
        time_left_s: Some(595.0),
        requests: None,
        links: Vec::new(),
        queues: Vec::new(),
        ..session(3, "backup", 0.0)
    };
    let host =
        HostRates { host: "host1".to_owned(), writer: true, requests: Some(requests(812.0)) };
    let export = ExportRates {
        export: "vm7".to_owned(),
        sessions: 1,
        requests: Some(requests(812.0)),
        hosts: vec![host],
        ..ExportRates::default()
    };
    let target = TargetRates {
        target: "store9".to_owned(),
        exports: vec![export],
        ..TargetRates::default()
    };
    TopReport {
        sessions: vec![session(1, "vm1", 12_345.0), session(2, "vm2", 4.2), lost],
        targets: vec![target],
    }
}

/// The screen after these keys, as lines.
fn screen((width, height): (u16, u16), keys: &[KeyCode], mut report: TopReport) -> Vec<String> {
    let mut view = View::new();
    view.arrange(&mut report);
    for key in keys {
        view.press(KeyEvent::new(*key, KeyModifiers::NONE), &report, width);
        view.arrange(&mut report);
    }
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let title = Title { machine: "host1", interval: 1.0, is_waiting: false };
    terminal.draw(|frame| draw(frame, &report, &view, &title)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<_> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    println!("{}", lines.join("\n"));
    lines
}

/// The lines that begin so, without blanks at both ends of the beginning.
fn lines_of<'a>(lines: &'a [String], begin: &str) -> Vec<&'a str> {
    lines.iter().map(|it| it.trim_start()).filter(|it| it.starts_with(begin)).collect()
}

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (160, 50);

#[test]
fn a_small_terminal_shows_all_that_matters() {
    let lines = screen(SMALL, &[], machine());
    let title = "tyche top  host1  3 sessions (1 not live), 1 target  12.3k req/s  50.6 MB/s";
    assert!(lines[0].starts_with(title), "{}", lines[0]);
    let head = "EXPORT       STATE     R/S    W/S  RMB/S  WMB/S     AVG     P99  FLY  RETX  LEFT";
    assert_eq!(lines[1], head);
    let row = "vm1          live    12.3k      0   50.6      0    85µs  1.23ms   32     0     -";
    assert!(lines.contains(&row.to_owned()));
    assert!(lines_of(&lines, "backup")[0].ends_with("595s"));
    // Sorted by name: the lost one is selected, and its problem is said.
    assert!(lines.contains(&"the target does not answer".to_owned()));
    assert_eq!(lines_of(&lines, "vm7").len(), 1);
    assert_eq!(lines_of(&lines, "host1").len(), 0, "hosts are shown on request");
    assert!(lines[23].starts_with("q quit"));
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn links_and_queues_are_those_of_the_selected_session() {
    let lines = screen(SMALL, &[KeyCode::Down], machine());
    assert!(lines_of(&lines, "eth1")[0].contains("51.8"), "{lines:?}");
    assert!(lines_of(&lines, "eth2")[0].contains("fault"));
    assert_eq!(lines_of(&lines, "QUEUES"), ["QUEUES  6172  6172 requests/s"]);
    assert!(lines.contains(&"eth2: it is down".to_owned()), "the problem of a link");
    let lines = screen(SMALL, &[KeyCode::Down, KeyCode::Enter], machine());
    assert_eq!(lines_of(&lines, "eth1").len() + lines_of(&lines, "QUEUES").len(), 0);
}

#[test]
fn a_large_terminal_has_all_columns_and_hosts_on_request() {
    let lines = screen(LARGE, &[KeyCode::Tab, KeyCode::Enter], machine());
    for title in ["TARGET", "DEVICE", "ERR/S", "LOST"] {
        assert!(lines[1].contains(title), "{}", lines[1]);
    }
    assert!(lines_of(&lines, "vm1")[0].contains("store1"));
    assert!(lines_of(&lines, "host1")[0].contains("writes"));
    assert!(lines_of(&lines, "TARGET").iter().any(|line| line.contains("AVG W")));
}

#[test]
fn sessions_are_sorted_by_the_column_that_keys_choose() {
    let names = |keys: &[KeyCode]| {
        let lines = screen(SMALL, keys, machine());
        let names = lines[2..5].iter().map(|line| line.split(' ').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["backup", "vm1", "vm2"]);
    // State, then reads: columns that are not shown are passed over.
    let reads = [KeyCode::Right, KeyCode::Right];
    assert_eq!(names(&reads), ["vm1", "vm2", "backup"]);
    let reversed = [reads[0], reads[1], KeyCode::Char('r')];
    assert_eq!(names(&reversed), ["backup", "vm2", "vm1"]);
    assert_eq!(names(&[KeyCode::Left]), ["backup", "vm1", "vm2"], "by time left");
}

#[test]
fn keys_end_the_program_and_pass_through_the_help() {
    let (mut view, report) = (View::new(), machine());
    let mut press = |code, modifiers| view.press(KeyEvent::new(code, modifiers), &report, 80);
    let none = KeyModifiers::NONE;
    assert_eq!(press(KeyCode::Char('q'), none), Asked::Quit);
    assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Asked::Quit);
    assert_eq!(press(KeyCode::Char('?'), none), Asked::Draw);
    assert_eq!(press(KeyCode::Esc, none), Asked::Draw, "closes the help");
    assert_eq!(press(KeyCode::Char(' '), none), Asked::Look);
    assert_eq!(press(KeyCode::Esc, none), Asked::Quit);
    let lines = screen(SMALL, &[KeyCode::Char('?')], machine());
    assert!(lines.iter().any(|line| line.contains("reverse the order")));
}

#[test]
fn no_terminal_is_too_small_and_no_machine_too_empty_or_too_full() {
    let many = (0..300).map(|number| session(number, &format!("vm{number:03}"), 1.0)).collect();
    let full = TopReport { sessions: many, ..machine() };
    for size in [(1, 1), (10, 3), (20, 5), (40, 8), (500, 200)] {
        for report in [TopReport::default(), machine(), full.clone()] {
            screen(size, &[KeyCode::Char('?'), KeyCode::End], report);
        }
    }
    let lines = screen(SMALL, &[KeyCode::End], full);
    assert_eq!(lines_of(&lines, "vm299").len(), 1, "the selected one is scrolled to");
    let lines = screen(SMALL, &[], TopReport::default());
    assert!(lines[1].contains("tyche connect EXPORT"));
}
