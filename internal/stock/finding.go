package stock

// Rule is something that must hold at any time. Its text is its name everywhere: in metrics, answers and reports.
type Rule string

// The rules that are checked all the time, and those that only a full check can prove.
const (
	RuleFigures   Rule = "figures-in-range"              // 0 ≤ held ≤ on hand ≤ [MaxOnHand]
	RuleSums      Rule = "movements-add-up"              // every movement adds its change, and the last one has the item's figures
	RuleVersions  Rule = "versions-contiguous"           // versions have no gaps, and the last one is the item's
	RuleHolds     Rule = "held-is-open-holds"            // held is what the lines of open holds hold
	RuleCustomers Rule = "customers-have-what-they-took" // what is counted for a customer is what his deductions hold or committed, and did not come back
	RuleKeys      Rule = "one-effect-per-key"            // every idempotency key names an effect that is there
	RuleGate      Rule = "gate-not-above-ledger"         // the gate says no more, and nothing newer, than the ledger
	RuleGateLags  Rule = "gate-as-ledger"                // it says no less either, nor what is older than news take
	RuleTickets   Rule = "gate-tickets-add-up"           // what the gate says of its tickets is what they are
	RuleStates    Rule = "lines-fit-state"               // full: lines are as their deduction's state says
	RuleLines     Rule = "lines-are-what-was-moved"      // full: lines are what their movements say
	RuleKeyed     Rule = "effects-have-one-key"          // full: every deduction and adjustment has its one key
)

// ContinuousRules lists the rules that are checked all the time.
func ContinuousRules() []Rule {
	return []Rule{RuleFigures, RuleSums, RuleVersions, RuleHolds, RuleCustomers, RuleKeys, RuleGate, RuleGateLags, RuleTickets}
}

// FullRules lists the rules that only a full check looks at: nothing in the ledger leads from one side of them to
// the other without reading whole tables.
func FullRules() []Rule { return []Rule{RuleStates, RuleLines, RuleKeyed} }

// InGate reports whether the rule is about the gate, which can be repaired. The ledger is never repaired: it is
// what everything else is repaired from.
func (r Rule) InGate() bool { return r == RuleGate || r == RuleGateLags || r == RuleTickets }

// Finding is a rule that does not hold somewhere.
type Finding struct {
	Rule     Rule
	Subject  string   // what it is about: an item, a deduction, a key
	Evidence []string // the rows that contradict each other, each with its table and key
	Repaired bool     // only of the gate: it was made to ask the ledger again
}
