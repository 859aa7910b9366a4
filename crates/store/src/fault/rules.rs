//! The rules by which faults strike requests.

use std::ops::Range;
use std::time::Duration;

use tyche_block::{Errno, OperationKind, Request};

/// The effect of a rule on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request fails and is not executed.
    Fail(Errno),
    /// The request succeeds and is not executed: the disk lies. A read leaves its buffer unchanged.
    Swallow,
    /// The request is executed at once, and its completion is held back for this long.
    Delay(Duration),
}

/// A fault and the requests that it strikes; by default all, for ever.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    kind: Option<OperationKind>,
    range: Option<Range<u64>>,
    times: u64,
}

impl Rule {
    /// A rule by which a fault strikes all requests, for ever.
    pub fn new(fault: Fault) -> Self {
        Self { fault, kind: None, range: None, times: u64::MAX }
    }

    /// A rule that fails requests.
    pub fn fail(errno: Errno) -> Self {
        Self::new(Fault::Fail(errno))
    }

    /// A rule that completes requests with success and does not execute them.
    pub fn swallow() -> Self {
        Self::new(Fault::Swallow)
    }

    /// A rule that delays completions. The delays of several rules add up.
    pub fn delay(by: Duration) -> Self {
        Self::new(Fault::Delay(by))
    }

    /// Limits the rule to requests of this kind.
    #[must_use]
    pub fn on(self, kind: OperationKind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Limits the rule to requests that touch these bytes of the disk. A flush touches none.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// Limits the rule to the next `times` requests that match it.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn matches(&self, request: &Request) -> bool {
        let end = request.offset.saturating_add(u64::from(request.len));
        self.kind.is_none_or(|kind| kind == request.operation.into())
            && self
                .range
                .as_ref()
                .is_none_or(|range| range.start.max(request.offset) < range.end.min(end))
    }
}

/// Identifies a rule that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

/// The rules in force.
#[derive(Default)]
pub(super) struct Rules {
    entries: Vec<Entry>,
    next_id: u64,
}

struct Entry {
    id: RuleId,
    rule: Rule,
    struck: u64,
}

/// The outcome of all rules for a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The result, if the wrapped store never sees the request.
    pub(super) end: Option<Result<(), Errno>>,
    pub(super) delay: Duration,
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        let id = RuleId(self.next_id);
        self.next_id += 1;
        self.entries.push(Entry { id, rule, struck: 0 });
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) -> Option<u64> {
        let index = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(index).struck)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Applies the rules to a request. Each matching delay counts a strike. Of the rules that fail
    /// or swallow the request, only the first one does.
    pub(super) fn judge(&mut self, request: &Request) -> Verdict {
        let mut verdict = Verdict::default();
        for entry in &mut self.entries {
            let Entry { rule, struck, .. } = entry;
            if *struck >= rule.times || !rule.matches(request) {
                continue;
            }
            let end = match rule.fault {
                Fault::Delay(by) => {
                    verdict.delay += by;
                    *struck += 1;
                    continue;
                }
                Fault::Fail(errno) => Err(errno),
                Fault::Swallow => Ok(()),
            };
            if verdict.end.is_none() {
                verdict.end = Some(end);
                *struck += 1;
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use tyche_block::Operation;

    use super::*;

    fn request(operation: Operation, offset: u64, len: u32) -> Request {
        Request { operation, offset, len, buffer: None }
    }

    #[test]
    fn rules_strike_matching_requests_up_to_their_limit() {
        let mut rules = Rules::default();
        let reads = Rule::fail(Errno::IO).on(OperationKind::Read);
        let id = rules.add(reads.within(512..1024).times(2));
        let mut end = |operation, offset| rules.judge(&request(operation, offset, 512)).end;
        assert_eq!(end(Operation::Read, 0), None);
        assert_eq!(end(Operation::Read, 1024), None);
        assert_eq!(end(Operation::Discard, 512), None);
        assert_eq!(end(Operation::Read, 512), Some(Err(Errno::IO)));
        assert_eq!(end(Operation::Read, 512), Some(Err(Errno::IO)));
        assert_eq!(end(Operation::Read, 512), None);
        assert_eq!(rules.remove(id), Some(2));
        assert_eq!(rules.remove(id), None);
    }

    #[test]
    fn delays_add_up_and_only_the_first_end_counts() {
        let mut rules = Rules::default();
        rules.add(Rule::delay(Duration::from_millis(1)));
        rules.add(Rule::swallow().times(1));
        let second = rules.add(Rule::fail(Errno::IO));
        rules.add(Rule::delay(Duration::from_millis(2)).on(OperationKind::Flush));
        let verdict = rules.judge(&request(Operation::Flush, 0, 0));
        assert_eq!(verdict, Verdict { end: Some(Ok(())), delay: Duration::from_millis(3) });
        assert_eq!(rules.judge(&request(Operation::Flush, 0, 0)).end, Some(Err(Errno::IO)));
        assert_eq!(rules.remove(second), Some(1));
    }

    #[test]
    fn a_flush_touches_no_range() {
        let mut rules = Rules::default();
        rules.add(Rule::fail(Errno::IO).within(0..u64::MAX));
        assert_eq!(rules.judge(&request(Operation::Flush, 0, 0)), Verdict::default());
    }
}
