//! The view of a user: what is selected, sorted and expanded, and what keys change.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use uuid::Uuid;

use crate::shared::report::{SessionRates, TopReport};

use super::columns::{SESSIONS, served};

/// The table that keys go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Sessions,
    Targets,
}

/// The request of a key to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing, or a change of the view.
    Draw,
    /// New figures at once.
    Look,
    /// The end.
    Quit,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct View {
    pub(super) focus: Focus,
    /// Index of the column of [`SESSIONS`] that they are sorted by.
    pub(super) sort: usize,
    /// Whether the other end comes first.
    pub(super) is_reversed: bool,
    /// The selected session: it stays selected wherever it is sorted to.
    selected: Option<Uuid>,
    /// Index of the selected row of the targets.
    pub(super) row: usize,
    /// Whether links and queues of the selected session are shown.
    pub(super) shows_links: bool,
    /// Whether the hosts of exports are shown.
    pub(super) shows_hosts: bool,
    pub(super) shows_help: bool,
    /// Whether the figures stay as they are.
    pub(super) is_paused: bool,
}

impl View {
    pub(super) fn new() -> Self {
        Self {
            focus: Focus::default(),
            sort: 0,
            is_reversed: false,
            selected: None,
            row: 0,
            shows_links: true,
            shows_hosts: false,
            shows_help: false,
            is_paused: false,
        }
    }

    /// Sorts the sessions, and selects what is there.
    pub(super) fn arrange(&mut self, report: &mut TopReport) {
        let column = &SESSIONS[self.sort];
        report.sessions.sort_by(|a, b| {
            let order = column.order(a, b);
            if self.is_reversed { order.reverse() } else { order }
        });
        let sessions = &report.sessions;
        if sessions.iter().all(|it| Some(it.session) != self.selected) {
            self.selected = sessions.first().map(|it| it.session);
        }
        let rows = served(&report.targets, self.shows_hosts).len();
        self.row = self.row.min(rows.saturating_sub(1));
        self.focus = match (sessions.is_empty(), rows == 0) {
            (true, false) => Focus::Targets,
            (_, true) => Focus::Sessions,
            (false, false) => self.focus,
        };
    }

    /// Index of the selected session.
    pub(super) fn index(&self, sessions: &[SessionRates]) -> Option<usize> {
        sessions.iter().position(|it| Some(it.session) == self.selected)
    }

    /// Selects the row that is so many further down, or up.
    fn step(&mut self, by: isize, report: &TopReport) {
        let moved =
            |index: usize, len: usize| index.saturating_add_signed(by).min(len.saturating_sub(1));
        match self.focus {
            Focus::Sessions => {
                let index = self.index(&report.sessions).unwrap_or(0);
                let session = report.sessions.get(moved(index, report.sessions.len()));
                self.selected = session.map(|it| it.session);
            }
            Focus::Targets => {
                self.row = moved(self.row, served(&report.targets, self.shows_hosts).len());
            }
        }
    }

    /// Sorts by the next column that is shown, or the one before it.
    fn sort_by_next(&mut self, forward: bool, width: u16) {
        let count = SESSIONS.len();
        for _ in 0..count {
            self.sort = (self.sort + if forward { 1 } else { count - 1 }) % count;
            if SESSIONS[self.sort].from <= width {
                return;
            }
        }
    }

    /// Does what a key says, on a terminal of that width.
    pub(super) fn press(&mut self, key: KeyEvent, report: &TopReport, width: u16) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return Asked::Quit,
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Esc if !std::mem::take(&mut self.shows_help) => return Asked::Quit,
            KeyCode::Char(' ') => return Asked::Look,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, report),
            KeyCode::Down | KeyCode::Char('j') => self.step(1, report),
            KeyCode::PageUp => self.step(-10, report),
            KeyCode::PageDown => self.step(10, report),
            KeyCode::Home => self.step(isize::MIN, report),
            KeyCode::End => self.step(isize::MAX, report),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by_next(false, width),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by_next(true, width),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Enter | KeyCode::Char('e') => match self.focus {
                Focus::Sessions => self.shows_links = !self.shows_links,
                Focus::Targets => self.shows_hosts = !self.shows_hosts,
            },
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = match self.focus {
                    Focus::Sessions => Focus::Targets,
                    Focus::Targets => Focus::Sessions,
                }
            }
            _ => {}
        }
        Asked::Draw
    }
}
