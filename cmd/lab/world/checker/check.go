package checker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// Violation is a promise that was broken.
type Violation struct {
	// Rule is the promise's name.
	Rule string `json:"rule"`
	// Text says what is wrong, with the values.
	Text string `json:"text"`
	// Line is the place in the history that shows it, from 0; -1 where only the log does.
	Line int `json:"line"`
}

// The rules' names.
const (
	// RuleLog: the log is whole: its checksums, its numbers and its times.
	RuleLog = "log"
	// RuleEndedOnce: an attempt ends once, a rollout is counted once, a slot has one rollout and a group one end.
	RuleEndedOnce = "ended-once"
	// RuleCountedOnce: counted is never said of two attempts of a rollout, nor both said and denied.
	RuleCountedOnce = "counted-once"
	// RuleCountedLogged: a rollout that was said to be counted is in the log as it was said, and no other is.
	RuleCountedLogged = "counted-in-log"
	// RuleAcknowledgedOrder: the log has what was acknowledged in the order in which it was.
	RuleAcknowledgedOrder = "acknowledged-order"
	// RuleTrainedOnce: a group is trained once.
	RuleTrainedOnce = "trained-once"
	// RuleLeaseContent: a lease that is answered again has the same content, which is what the log leased.
	RuleLeaseContent = "lease-content"
	// RuleBatch: the shape of a batch: sizes, stamps, sums, versions, advantages.
	RuleBatch = "batch"
	// RuleReward: a batch has the rewards that workers gave.
	RuleReward = "reward"
	// RulePlayed: a chat that a plane or a cell plays is one, goes on with the environment's answers, and is judged by its end.
	RulePlayed = "played"
	// RulePrompt: the rollouts of a group have the prompt that their workers sent.
	RulePrompt = "prompt"
	// RuleToken: each token is one that the version it is stamped with samples.
	RuleToken = "token-version"
	// RuleResponse: a batch has the responses that agents were told of, and those alone; a turn asked again is the same.
	RuleResponse = "response"
	// RuleRows: a row beside a token is of the weights that sampled it.
	RuleRows = "rows"
	// RuleStale: the bound on staleness holds.
	RuleStale = "staleness"
	// RulePublished: a version that was acknowledged is in the log, made by its lease.
	RulePublished = "published-in-log"
	// RuleVersion: a version has one content for all, and names its batch.
	RuleVersion = "version-content"
	// RuleVersionOrder: versions go up by one.
	RuleVersionOrder = "version-order"
	// RuleClaim: an attempt is one worker's, under a secret of its own.
	RuleClaim = "claim"
	// RuleReply: a call that is sent again under its key gets the reply of the first.
	RuleReply = "reply"
	// RuleExpired: no claim or lease ends while its holder is heard, or cannot be.
	RuleExpired = "expired"
	// RuleLedger: every attempt is somewhere.
	RuleLedger = "ledger"
	// RuleStatus: a status agrees with the log and never goes back.
	RuleStatus = "status"
	// RuleWriter: one plane at a time acknowledges.
	RuleWriter = "one-writer"
	// RuleDurable: nothing is said of a claim, an end or a lease before the broker has it.
	RuleDurable = "durable"
	// RuleBack: a run goes on soon after what kept it from that.
	RuleBack = "back"
	// RuleCell: an event of a cell counts once, in its turn, of the newest process alone. A cell that is heard is not lost.
	RuleCell = "cell"
	// RuleReceiver: a receiver holds exactly a version's bytes, and is told and believed accordingly.
	RuleReceiver = "receiver"
	// RuleInternal: no request meets a defect of the server.
	RuleInternal = "internal"
)

// perRule bounds the violations of one rule that are told.
const perRule = 20

// check is one history under its rules.
type check struct {
	sampler Sampler
	lines   []history.Line
	said    *testimony
	log     *ledger
	ending  history.Ending
	// versions are the contents of versions, by number.
	versions map[int64]*content
	outages  []outage
	// writers are acknowledgements of the planes that wrote the log, by the number of recoveries before.
	writers map[int]logTime

	found []Violation
	count map[string]int
}

// Check returns what is wrong with a history, in the order of its lines.
func Check(s Sampler, lines []history.Line, ending history.Ending) []Violation {
	c := &check{sampler: s, lines: lines, ending: ending, count: map[string]int{}, versions: map[int64]*content{}}
	c.said, c.outages = hear(c, lines), outages(lines)
	text, err := readLog(ending)
	if errors.Is(err, os.ErrNotExist) && !ending.Finished {
		return c.found // the run has not begun
	}
	if err != nil {
		c.fail(RuleLog, -1, "%v", err)
	}
	c.log = fold(c, text)
	c.checkCounted()
	c.checkOrder()
	c.checkBatches()
	c.checkGroups()
	c.checkRows()
	c.checkTrained()
	c.checkVersions()
	c.checkStaleness()
	c.checkWriters()
	c.checkClaims()
	c.checkKept()
	c.checkStatus()
	c.checkDeposed()
	c.checkDrains()
	c.checkDurable()
	c.checkBack()
	c.checkConnects()
	c.checkReceivers()
	c.checkReplies()
	c.checkExpired()
	c.checkSilent(c.clocks())
	c.checkConflicts()
	c.checkSound()
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	return c.found
}

func (c *check) fail(rule string, line int, format string, args ...any) {
	c.count[rule]++
	if c.count[rule] <= perRule {
		c.found = append(c.found, Violation{Rule: rule, Text: fmt.Sprintf(format, args...), Line: line})
	}
}
