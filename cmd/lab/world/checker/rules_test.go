package checker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// mutation is a change of the clean history that breaks a promise.
type mutation struct {
	rule, what string
	change     func(r *recording)
}

var mutations = []mutation{
	{RuleResponse, "a turn that is asked for again is a conflict", func(r *recording) {
		_, id, _ := r.finish(3)
		finish := r.find(fmt.Sprintf("/g%d-s%d-a%d/finish", id.group, id.sample, id.attempt), 200, "", 0)
		i := r.find(fmt.Sprintf("/g%d-s%d-a%d/sample", id.group, id.sample, id.attempt), 200, "", 0)
		x := r.again(i)
		x.Status, x.Response = 409, []byte(`{"error":{"code":"conflict","message":"too early"}}`)
		r.lines[i+1].AtNS = r.exchange(finish + 1).BeganNS
	}},
	{RuleLog, "an event is missing", func(r *recording) {
		i := r.entry(3, `"e":"first-token"`)
		r.log = slices.Delete(r.log, i, i+1)
	}},
	{RuleLog, "a cell has read what the log has lost", func(r *recording) {
		r.lines = append(r.lines, history.Line{AtNS: r.lines[len(r.lines)-1].AtNS, Host: "cell0", Kind: "note", Text: "ended: trace: line 81: checksum mismatch: it was changed"})
	}},
	{RuleLog, "time falls", func(r *recording) { r.edit(r.entry(9, `"e":"first-token"`), `"t":`, `"t":1,"x":`) }},
	{RuleCountedLogged, "a rollout that counts is gone from the log", func(r *recording) {
		_, _, parts := r.finish(30)
		r.cut(r.entry(0, append(parts, `"e":"rollout-scored"`)...))
	}},
	{RuleCountedLogged, "another reward is logged", func(r *recording) {
		_, _, parts := r.finish(30)
		r.edit(r.entry(0, append(parts, `"e":"rollout-scored"`)...), `"tokens"`, `"reward":0.5,"tokens"`)
	}},
	{RuleCountedLogged, "a rollout that counts is said not to", func(r *recording) {
		line, _, _ := r.finish(30)
		r.answer(line, "true", "false")
	}},
	{RuleCountedLogged, "a rollout counts that nobody finished", func(r *recording) {
		line, _, _ := r.finish(30)
		r.lines = slices.Delete(r.lines, line, line+1)
	}},
	{RuleCountedLogged, "a rollout of no attempt is said to count", func(r *recording) {
		line, _, _ := r.finish(30)
		r.again(line).Path = "/api/v1/rollouts/g900-s0-a1/finish"
	}},
	{RuleCountedOnce, "two attempts count", func(r *recording) {
		line, id, _ := r.finish(30)
		r.again(line).Path = fmt.Sprintf("/api/v1/rollouts/g%d-s%d-a%d/finish", id.group, id.sample, id.attempt+1)
	}},
	{RuleCountedOnce, "said and denied", func(r *recording) {
		line, _, _ := r.finish(30)
		r.again(line)
		r.answer(line+1, "true", "false")
	}},
	{RuleCountedOnce, "counted with two rewards", func(r *recording) {
		line, _, _ := r.finish(30)
		r.again(line)
		r.request(line+1, `"reward":`, `"reward":5`)
	}},
	{RuleEndedOnce, "an attempt starts twice", func(r *recording) {
		i := r.entry(30, `"a":"start-rollout"`)
		r.log = slices.Insert(r.log, i, r.log[i])
	}},
	{RuleEndedOnce, "a scored rollout is tried again", func(r *recording) {
		_, id, _ := r.finish(2)
		i := r.entry(60, `"e":"first-token"`)
		n := r.log[i][:strings.Index(r.log[i], ",")]
		r.log = slices.Insert(r.log, i+1, fmt.Sprintf(`%s,"a":"start-rollout","slot":77,"g":%d,"s":%d,"attempt":%d`, n, id.group, id.sample, id.attempt+1))
	}},
	{RuleEndedOnce, "two rollouts in a slot", func(r *recording) {
		i := r.entry(1, `"a":"start-rollout"`)
		r.edit(i, `"slot":4`, `"slot":0`)
	}},
	{RuleAcknowledgedOrder, "the log has two finishes in another order", func(r *recording) {
		r.swap(30, 60)
	}},
	{RuleTrainedOnce, "a lease makes two versions", func(r *recording) {
		r.edit(r.entry(0, `"e":"train-step-ended"`, `"lease":7`), `"lease":7`, `"lease":6`)
	}},
	{RuleTrainedOnce, "a group is in two leases", func(r *recording) {
		first := r.groups(6)
		i := r.entry(0, `"a":"group-leased"`, `"lease":7`)
		rest := r.log[i][strings.Index(r.log[i], `"g":`)+4:]
		r.edit(i, `"g":`+rest[:strings.Index(rest, ",")], fmt.Sprintf(`"g":%d`, first[0]))
	}},
	{RuleTrainedOnce, "two leases that were acknowledged have a group", func(r *recording) {
		ids := r.tensor(r.find("/batches/lease", 200, "headway", 6), "groups")
		binary.LittleEndian.PutUint64(ids, uint64(r.groups(6)[0]))
	}},
	{RuleTrainedOnce, "the trainer has two leases", func(r *recording) {
		r.cut(r.entry(0, `"e":"train-step-ended"`, `"lease":7`))
	}},
	{RuleLeaseContent, "a lease that is answered again has another token", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		r.again(i)
		r.tensor(i+1, "tokens")[0]++
	}},
	{RuleLeaseContent, "a lease that is answered again has another reward", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		r.again(i)
		r.tensor(i+1, "rewards")[2]++
	}},
	{RuleLeaseContent, "a batch has a group that the log did not lease", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		ids := r.tensor(i, "groups")
		for k := range 4 {
			binary.LittleEndian.PutUint64(ids[8*k:], 900)
		}
	}},
	{RuleLeaseContent, "a batch of a lease that the log does not have", func(r *recording) {
		r.answer(r.find("/batches/lease", 200, "headway", 19), `\"lease\":20,`, `\"lease\":90,`)
	}},
	{RuleLeaseContent, "a rank is given the share that it has done", func(r *recording) {
		r.request(r.find("/batches/lease", 200, "headway", 6), `"after":6`, `"after":7`)
	}},
	{RuleLeaseContent, "two ranks have a group", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		r.again(i)
		r.request(i, `{`, `{"rank":0,"world_size":2,`)
		r.request(i+1, `{`, `{"rank":1,"world_size":2,`)
	}},
	{RuleBatch, "a batch says another staleness", func(r *recording) {
		r.answer(r.find("/batches/lease", 200, "headway", 6), `\"staleness_max\":0`, `\"staleness_max\":3`)
	}},
	{RuleBatch, "a batch says another stamp", func(r *recording) {
		r.answer(r.find("/batches/lease", 200, "headway", 6), `\"start_version\":6`, `\"start_version\":5`)
	}},
	{RuleBatch, "a batch lacks a group", func(r *recording) {
		i := r.entry(0, `"a":"group-leased"`, `"lease":7`)
		r.log = slices.Delete(r.log, i, i+1)
	}},
	{RuleBatch, "a rollout is in its batch twice", func(r *recording) {
		r.tensor(r.find("/batches/lease", 200, "headway", 6), "samples")[0] = 1
	}},
	{RuleReward, "a batch has another reward", func(r *recording) {
		rewards := r.tensor(r.find("/batches/lease", 200, "headway", 6), "rewards")
		binary.LittleEndian.PutUint32(rewards, math.Float32bits(0.5))
	}},
	{RuleReward, "a batch has another advantage", func(r *recording) {
		advantages := r.tensor(r.find("/batches/lease", 200, "headway", 6), "advantages")
		binary.LittleEndian.PutUint32(advantages, math.Float32bits(3))
	}},
	{RulePrompt, "a group has two prompts", func(r *recording) {
		r.tensor(r.find("/batches/lease", 200, "headway", 6), "tokens")[4]++
	}},
	{RuleToken, "a token is another", func(r *recording) { r.sampled(6, "tokens")[0] ^= 1 }},
	{RuleToken, "a log-prob is another", func(r *recording) { r.sampled(6, "logprobs")[1] ^= 1 }},
	{RuleToken, "a token is said to be of the version before", func(r *recording) { r.sampled(6, "versions")[0]-- }},
	{RuleToken, "a token of the policy's is said to be of the prompt", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		mask := r.tensor(i, "loss_mask")
		mask[slices.Index(mask, 1)] = 0
	}},
	{RuleToken, "the log says another number of tokens", func(r *recording) {
		_, _, parts := r.finish(30)
		r.edit(r.entry(0, append(parts, `"e":"rollout-scored"`)...), `"tokens":`, `"tokens":1`)
	}},
	{RuleStale, "groups are older than the bound", func(r *recording) {
		for i, line := range r.log {
			if strings.Contains(line, `"a":"group-leased"`) && strings.Contains(line, `"start_v":`) {
				at := strings.Index(line, `"start_v":`)
				end := at + strings.Index(line[at:], ",")
				r.log[i] = line[:at] + `"start_v":0` + line[end:]
			}
		}
	}},
	{RulePublished, "a version that was acknowledged is gone from the log", func(r *recording) {
		i := r.entry(0, `"e":"train-step-ended"`, `"lease":20`)
		r.log = r.log[:i]
	}},
	{RulePublished, "the log has another lease for a version", func(r *recording) {
		r.request(r.find("/weights", 200, `"version":7`, 0), `"lease":7`, `"lease":27`)
	}},
	{RuleVersion, "a version is published again with other bytes", func(r *recording) {
		i := r.find("/weights", 200, `"version":7,"existing":false`, 0)
		x := r.again(i)
		x.Request[len(x.Request)-60] ^= 1
	}},
	{RuleVersion, "a file of a version is another on the disk", func(r *recording) {
		path := filepath.Join(r.dir, "weights/v000019/model.safetensors")
		raw, err := os.ReadFile(path)
		if err != nil {
			r.tb.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}},
	{RuleVersion, "a version on the disk names another lease", func(r *recording) {
		path := filepath.Join(r.dir, "weights/v000019/manifest.json")
		raw, err := os.ReadFile(path)
		if err != nil {
			r.tb.Fatal(err)
		}
		if !strings.Contains(string(raw), `"lease": 19`) {
			r.tb.Fatalf("%s", raw)
		}
		raw = []byte(strings.Replace(string(raw), `"lease": 19`, `"lease": 18`, 1))
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}},
	{RuleVersion, "the newest version is gone from the disk", func(r *recording) {
		if err := os.RemoveAll(filepath.Join(r.dir, "weights/v000020")); err != nil {
			r.tb.Fatal(err)
		}
	}},
	{RuleVersion, "a plane serves other bytes", func(r *recording) {
		i := r.find("/files/", 200, "", 0)
		x := r.again(i)
		x.Response[len(x.Response)-1] ^= 1
	}},
	{RuleVersionOrder, "a version is skipped", func(r *recording) {
		r.edit(r.entry(0, `"e":"train-step-ended"`, `"lease":7`), `"v":7`, `"v":8`)
	}},
	{RuleVersionOrder, "a batch is trained from an older version", func(r *recording) {
		r.edit(r.entry(0, `"a":"start-train-step"`, `"lease":7`), `"v":6`, `"v":5`)
	}},
	{RuleClaim, "two workers hold an attempt", func(r *recording) {
		i := r.find("/rollouts/claim", 200, "", 20)
		r.again(i)
		r.request(i+1, `"worker":"`, `"worker":"other`)
	}},
	{RuleClaim, "two claims have a secret", func(r *recording) {
		a, b := r.find("/rollouts/claim", 200, "", 20), r.find("/rollouts/claim", 200, "", 21)
		secret := func(i int) string {
			_, rest, _ := strings.Cut(string(r.lines[i].Exchange.Response), `"secret":"`)
			return rest[:strings.Index(rest, `"`)]
		}
		r.answer(b, secret(b), secret(a))
	}},
	{RuleClaim, "a rollout is claimed that counts", func(r *recording) {
		_, id, _ := r.finish(2)
		i := r.find("/rollouts/claim", 200, "", 60)
		x := r.again(i)
		x.BeganNS, r.lines[i+1].AtNS = r.lines[i].AtNS+1, r.lines[i].AtNS+2
		x.Response = fmt.Appendf(nil, `{"rollouts":[{"id":"g%d-s%d-a%d","group":%d,"sample":%d,"attempt":%d,"key":"k","secret":"s","deadline_s":8}]}`,
			id.group, id.sample, id.attempt+1, id.group, id.sample, id.attempt+1)
	}},
	{RuleExpired, "a claim that goes on is said to be over", func(r *recording) {
		_, id, _ := r.finish(30)
		i := r.find("/rollouts/claim", 200, fmt.Sprintf(`"id":"g%d-s%d-a%d"`, id.group, id.sample, id.attempt), 0)
		x := r.again(i)
		x.Path, x.Status, x.Response = fmt.Sprintf("/api/v1/rollouts/g%d-s%d-a%d/touch", id.group, id.sample, id.attempt), 410, []byte(`{"error":{"code":"expired","message":"over"}}`)
	}},
	{RuleExpired, "a claim ends as silent whose worker was heard", func(r *recording) {
		line, _, parts := r.finish(30)
		r.lines = slices.Delete(r.lines, line, line+1)
		i := r.entry(0, append(parts, `"e":"rollout-scored"`)...)
		r.edit(i, `"e":"rollout-scored"`, `"e":"rollout-failed"`)
		r.log[i] += `,"reason":"timeout"`
	}},
	{RuleExpired, "a lease goes back whose trainer was heard", func(r *recording) {
		i := r.entry(0, `"e":"train-step-ended"`, `"lease":7`)
		r.edit(i, `"e":"train-step-ended"`, `"e":"lease-returned"`)
		r.log = r.log[:i+1]
	}},
	{RuleExpired, "a claim is said to be over long before it ends", func(r *recording) {
		r.slow(1000)
		line, id, parts := r.finish(30)
		r.lines = slices.Delete(r.lines, line, line+1)
		i := r.entry(0, append(parts, `"e":"rollout-scored"`)...)
		r.edit(i, `"e":"rollout-scored"`, `"e":"rollout-failed"`)
		r.log[i] += `,"reason":"engine"`
		r.gone(id, "touch")
	}},
	{RuleExpired, "a claim ends while a call is open", func(r *recording) {
		r.slow(1000)
		_, _, parts := r.finish(30)
		i := r.entry(0, append(parts, `"e":"first-token"`)...)
		r.edit(i, `"e":"first-token"`, `"e":"rollout-failed"`)
		r.log[i] += `,"reason":"timeout"`
	}},
	{RuleExpired, "a claim that ended is sampled", func(r *recording) {
		_, _, parts := r.finish(30)
		r.late(parts, -60, "rollout-failed", "timeout")
	}},
	{RuleExpired, "a claim ends as silent as its plane stood still", func(r *recording) {
		line, _, parts := r.finish(30)
		r.lines = slices.Delete(r.lines, line, line+1)
		r.late(parts, 9, "rollout-failed", "timeout")
		r.fault("plane0", line, 7)
	}},
	{RuleExpired, "a lease is said to be over that is at its trainer", func(r *recording) {
		i := r.find("/batches/lease", 200, "headway", 6)
		x := r.again(i)
		x.Path, x.Status, x.Request, x.Response = "/api/v1/batches/7/renew", 410, []byte(`{"trainer":"trainer","attempt":1,"rank":0}`), []byte(`{"error":{"code":"expired","message":"over"}}`)
		x.BeganNS = r.lines[i].AtNS + 1
		r.lines[i+1].AtNS += 2
	}},
	{RuleExpired, "a lease is said to be over behind a publish that was refused at once", func(r *recording) {
		i := slices.IndexFunc(r.lines, func(l history.Line) bool {
			return l.Exchange != nil && l.Exchange.Path == "/api/v1/weights" && bytes.Contains(l.Exchange.Request, []byte(`"lease":7`))
		})
		r.lines = slices.Insert(r.lines, i, r.lines[i], r.lines[i])
		refused, renewed := r.exchange(i), r.exchange(i+1)
		refused.Status, refused.Response = 503, []byte(`{"error":{"code":"unavailable","message":"the control plane is starting"}}`)
		renewed.Path, renewed.Status, renewed.Request, renewed.Response = "/api/v1/batches/7/renew", 410, []byte(`{"trainer":"trainer","attempt":1,"rank":0}`), []byte(`{"error":{"code":"expired","message":"over"}}`)
		began := r.lines[i+2].Exchange.BeganNS
		refused.BeganNS, r.lines[i].AtNS, renewed.BeganNS, r.lines[i+1].AtNS = began-4, began-3, began-2, began-1
	}},
	{RuleExpired, "a step fails that no trainer had", func(r *recording) {
		i := r.entry(0, `"e":"train-step-ended"`, `"lease":7`)
		r.edit(i, `"e":"train-step-ended"`, `"e":"train-step-failed"`)
		r.log = r.log[:i+1]
		given := r.find("/batches/lease", 200, "headway", 6)
		r.lines = slices.DeleteFunc(r.lines, func(l history.Line) bool {
			return l.Exchange != nil && (strings.HasPrefix(l.Exchange.Path, "/api/v1/batches/7/") || l.AtNS == r.lines[given].AtNS)
		})
	}},
	{RuleClaim, "a claim ends as silent that no worker was given", func(r *recording) {
		line, id, parts := r.finish(30)
		r.lines = slices.Delete(r.lines, line, line+1)
		i := r.find("/rollouts/claim", 200, fmt.Sprintf(`"id":"g%d-s%d-a%d"`, id.group, id.sample, id.attempt), 0)
		r.lines = slices.Delete(r.lines, i, i+1)
		r.late(parts, 9, "rollout-failed", "timeout")
	}},
	{RuleReply, "a call that is sent again is done again", func(r *recording) {
		i := r.find("/rollouts/claim", 200, `"id":"g`, 5)
		r.exchange(i).Key = "key"
		x := r.again(i)
		x.Lost, x.Status, x.Response = bytes.Replace(x.Response, []byte(`"id":"g`), []byte(`"id":"g9`), 1), 0, nil
	}},
	{RuleExpired, "a lease that went back is renewed", func(r *recording) {
		i := r.entry(0, `"e":"train-step-ended"`, `"lease":7`)
		r.edit(i, `"e":"train-step-ended"`, `"e":"lease-returned"`)
		r.log = r.log[:i+1]
		at := r.find("/status", 200, "", 10)
		x := r.again(at)
		x.Method, x.Path, x.Request, x.Response = "POST", "/api/v1/batches/7/renew", []byte(`{"trainer":"trainer","attempt":1,"rank":0}`), []byte(`{"deadline_s":8}`)
	}},
	{RuleStatus, "a trainer is to load a version that has no weights", func(r *recording) {
		i := r.find("/trainers/connect", 200, "", 0)
		x := r.again(i)
		x.Path, x.Request, x.Response = "/api/v1/batches/1/ack", []byte(`{"attempt":1}`), []byte(`{"version":0}`)
	}},
	{RuleVersion, "the latest version has no weights", func(r *recording) {
		r.exchange(r.find("/weights/latest", 200, "", 0)).Response = []byte(`{"version":0,"manifest":{"version":0,"kind":"none"}}`)
	}},
	{RuleStatus, "a worker is told too early that the run has ended", func(r *recording) {
		i := r.find("/rollouts/claim", 200, "", 20)
		x := r.again(i)
		x.Status, x.Response = 205, nil
	}},
	{RuleToken, "a worker is told other tokens than are trained", func(r *recording) {
		i := r.find("/sample", 200, `"tokens":[`, 30)
		r.answer(i, `"tokens":[`, `"tokens":[1,`)
	}},
	{RuleToken, "a turn that is asked again is another", func(r *recording) {
		i := r.find("/sample", 200, `"tokens":[`, 30)
		r.again(i)
		r.answer(i+1, `"tokens":[`, `"tokens":[1,`)
	}},
	{RuleCountedLogged, "a finish that is sent again is refused", func(r *recording) {
		line, _, _ := r.finish(30)
		at := r.lines[line].AtNS
		x := r.again(line)
		x.Status, x.Response, x.BeganNS = 409, []byte(`{"error":{"code":"conflict"}}`), at+1
		r.lines[line+1].AtNS = at + 2
	}},
	{RulePublished, "a publish that is sent again is refused", func(r *recording) {
		i := r.find("/weights", 200, `"version":7,"existing":false`, 0)
		x := r.again(i)
		x.Status, x.Response, x.BeganNS = 409, []byte(`{"error":{"code":"conflict"}}`), r.lines[i].AtNS+1
		r.lines[i+1].AtNS += 2
	}},
	{RuleVersion, "the rest of a file begins a byte too early", func(r *recording) {
		sent := r.exchange(r.find("/weights", 200, `"version":20`, 0)).Request
		content := sent[bytes.Index(sent, []byte("lm_head"))-10:][:40]
		r.lines = append(r.lines, history.Line{AtNS: r.lines[len(r.lines)-1].AtNS + 1, Host: "trainer", Kind: "exchange", Exchange: &history.Exchange{
			Method: "GET", Path: "/api/v1/weights/20/files/model.safetensors", Status: 206, Range: "bytes=9-", Response: content, To: "plane0",
		}})
	}},
	{RulePublished, "a publish is refused that made its version", func(r *recording) {
		x := r.exchange(r.find("/weights", 200, `"version":20`, 0))
		x.Status, x.Response = 410, []byte(`{"error":{"code":"expired"}}`)
	}},
	{RuleStale, "a group is leased after its time", func(r *recording) {
		r.edit(0, `"Policy":4`, `"Policy":1`)
	}},
	{RuleStale, "a group opens beside too many", func(r *recording) {
		r.edit(0, `"Eta":1`, `"Eta":0`)
	}},
	{RuleStale, "a group opens on an engine that lags", func(r *recording) {
		i := r.entry(0, `"a":"start-rollout"`, `"g":20,`)
		at := strings.Index(r.log[i], `"v":`)
		r.log[i] = r.log[i][:at] + `"v":1` + r.log[i][at+strings.Index(r.log[i][at:], ","):]
	}},
	{RuleStale, "a group is said to be ready at another version", func(r *recording) {
		i := r.entry(0, `"a":"group-leased"`, `"lease":7`)
		r.edit(i, `"ready_v":`, `"ready_v":1`)
	}},
	{RuleClaim, "claims are given out in another order", func(r *recording) {
		i := r.find("/rollouts/claim", 200, `},{`, 3)
		var reply struct {
			Rollouts []json.RawMessage `json:"rollouts"`
		}
		x := r.exchange(i)
		if err := json.Unmarshal(x.Response, &reply); err != nil {
			r.tb.Fatal(err)
		}
		slices.Reverse(reply.Rollouts)
		x.Response, _ = json.Marshal(reply)
	}},
	{RuleWriter, "versions are of epochs that fall", func(r *recording) {
		path := filepath.Join(r.dir, "weights/v000019/manifest.json")
		raw, err := os.ReadFile(path)
		if err != nil {
			r.tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(raw), `"epoch": 1`, `"epoch": 2`, 1)), 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}},
	{RuleLedger, "the ledger at the end is another", func(r *recording) {
		r.edit(len(r.log)-1, `"trained":160`, `"trained":159`)
	}},
	{RuleLedger, "a status does not balance", func(r *recording) {
		r.answer(r.find("/status", 200, `"state":"running"`, 5), `"admitted":`, `"admitted":1`)
	}},
	{RuleLedger, "a status says that it does not balance", func(r *recording) {
		r.answer(r.find("/status", 200, `"state":"running"`, 5), `"balanced":true`, `"balanced":false`)
	}},
	{RuleStatus, "a status says another version", func(r *recording) {
		i := r.find("/status", 200, `"state":"running"`, 5)
		r.answer(i, `"state":"running","version":`, `"state":"running","version":1`)
	}},
	{RuleStatus, "a status goes back", func(r *recording) {
		a, b := r.find("/status", 200, `"state":"running"`, 1), r.find("/status", 200, `"state":"running"`, 4)
		x, y := r.exchange(a), r.exchange(b)
		x.Response, y.Response = y.Response, x.Response
	}},
	{RuleStatus, "a trainer is told an older version", func(r *recording) {
		i := r.find("/trainers/connect", 200, "", 0)
		l := r.lines[i]
		l.AtNS = r.lines[len(r.lines)-1].AtNS + 2
		x := *l.Exchange
		x.BeganNS = l.AtNS - 1
		l.Exchange = &x
		r.lines = append(r.lines, l)
	}},
	{RuleWriter, "two planes acknowledge", func(r *recording) {
		line, _, _ := r.finish(30)
		r.exchange(line).To = "plane1"
	}},
	{RuleWriter, "two planes give out claims", func(r *recording) {
		r.exchange(r.find("/rollouts/claim", 200, "", 20)).To = "plane1"
	}},
	{RuleWriter, "two planes give out batches", func(r *recording) {
		r.exchange(r.find("/batches/lease", 200, "", 6)).To = "plane1"
	}},
	{RuleWriter, "two planes run under an epoch", func(r *recording) {
		r.exchange(r.find("/status", 200, `"state":"running"`, 5)).To = "plane1"
	}},
	{RuleReceiver, "a receiver holds other bytes", func(r *recording) {
		at := r.lines[len(r.lines)-1].AtNS
		r.lines = append(r.lines, history.Line{AtNS: at, Host: "receiver0", Kind: "note", Text: "holds 19 model.safetensors sha256:00"})
	}},
	{RuleReceiver, "a receiver says that it holds a version without its file", func(r *recording) {
		at := r.lines[len(r.lines)-1].AtNS
		r.lines = append(r.lines, history.Line{AtNS: at, Host: "receiver0", Kind: "note", Text: "holds 19 model.safetensors absent"})
	}},
	{RuleInternal, "a request meets a defect", func(r *recording) {
		line, _, _ := r.finish(30)
		r.exchange(line).Status = 500
	}},
	{RuleInternal, "an answer cannot be read", func(r *recording) {
		line, _, _ := r.finish(30)
		r.answer(line, "}", "")
	}},
}

// swap exchanges the calls of two finishes, of which one was answered before the other began.
func (r *recording) swap(a, b int) {
	x, _, _ := r.finish(a)
	y, _, _ := r.finish(b)
	p, q := r.exchange(x), r.exchange(y)
	if r.lines[x].AtNS >= q.BeganNS {
		r.tb.Fatalf("the finishes %d and %d are of one time", a, b)
	}
	p.BeganNS, q.BeganNS = q.BeganNS, p.BeganNS
	r.lines[x].AtNS, r.lines[y].AtNS = r.lines[y].AtNS, r.lines[x].AtNS
}

// groups are those of the nth batch, from 0.
func (r *recording) groups(nth int) []int64 {
	b, err := readBody(r.lines[r.find("/batches/lease", 200, "headway", nth-1)].Exchange.Response)
	if err != nil {
		r.tb.Fatal(err)
	}
	return b.groups
}

// sampled returns the bytes of a tensor in the nth batch from its second token on that the policy sampled.
func (r *recording) sampled(nth int, name string) []byte {
	i := r.find("/batches/lease", 200, "headway", nth)
	mask := r.tensor(i, "loss_mask")
	return r.tensor(i, name)[4*(slices.Index(mask, 1)+1):]
}

func TestEveryMutationIsFound(t *testing.T) {
	rules := map[string]bool{}
	for _, m := range mutations {
		rules[m.rule] = true
		t.Run(m.rule+"/"+strings.ReplaceAll(m.what, " ", "-"), func(t *testing.T) {
			r := record(t)
			m.change(r)
			if found := r.check(); !says(found, m.rule) {
				t.Errorf("rule %s found nothing, and all rules this: %+v", m.rule, found)
			}
		})
	}
}

// Time in which a plane cannot answer is none of a claim's.
func TestSilenceEndsAClaim(t *testing.T) {
	r := record(t)
	line, _, parts := r.finish(30)
	r.lines = slices.Delete(r.lines, line, line+1)
	r.late(parts, 9, "rollout-failed", "timeout")
	if found := r.check(); says(found, RuleExpired) {
		t.Errorf("%+v", found)
	}
}

// Time in which another plane than the writer stands still is a claim's as any other.
func TestSilenceEndsAClaimWhileAStandbyIsFrozen(t *testing.T) {
	r := record(t)
	line, _, parts := r.finish(30)
	r.lines = slices.Delete(r.lines, line, line+1)
	r.late(parts, 9, "rollout-failed", "timeout")
	r.fault("plane1", line, 7)
	if found := r.check(); says(found, RuleExpired) {
		t.Errorf("%+v", found)
	}
}

func TestUnchangedCopyIsClean(t *testing.T) {
	if found := record(t).check(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// A refusal renews no claim: neither that it is over, nor that the plane stands by.
func TestSilenceEndsAClaimThatIsRefused(t *testing.T) {
	for status, message := range map[int]string{410: "over", 503: "this process stands by; another one is the run's writer"} {
		r := record(t)
		line, id, parts := r.finish(30)
		at := r.lines[line].AtNS
		x := r.again(line)
		x.Path, x.Status, x.BeganNS = fmt.Sprintf("/api/v1/rollouts/g%d-s%d-a%d/touch", id.group, id.sample, id.attempt), status, at+8*second
		x.Response = fmt.Appendf(nil, `{"error":{"code":"refused","message":%q}}`, message)
		r.lines[line+1].AtNS = at + 8*second + 1
		r.lines = slices.Delete(r.lines, line, line+1)
		r.late(parts, 9, "rollout-failed", "timeout")
		if found := r.check(); says(found, RuleExpired) {
			t.Errorf("refused with %d: %+v", status, found)
		}
	}
}

func TestOutagesOfOneKindOverlap(t *testing.T) {
	line := func(at int64, host, kind, text string) history.Line {
		return history.Line{AtNS: at * second, Host: host, Kind: kind, Text: text}
	}
	got := outages([]history.Line{
		line(1, "broker", "fault", "cut  for 6000 ms, by 0 ms"), line(2, "broker", "fault", "cut plane1 for 3000 ms, by 0 ms"), line(2, "plane0", "fault", "kill  for 300 ms"),
		line(3, "plane0", "dead", "kill"), line(5, "broker", "healed", "cut"), line(5, "plane0", "start", ""), line(7, "broker", "healed", "cut"), line(8, "plane1", "fault", "freeze"), line(8, "broker", "fault", "freeze  for 6000 ms"),
		line(8, "plane2", "fault", "freeze  for 6000 ms"), line(9, "plane2", "fault", "kill  for 300 ms"), line(9, "broker", "dead", "kill"), line(10, "world", "healed", "everything"),
	})
	want := []outage{
		{span{1 * second, 7 * second}, "broker", "cut", ""}, {span{2 * second, 5 * second}, "broker", "cut", "plane1"}, {span{2 * second, 5 * second}, "plane0", "kill", ""},
		{span{3 * second, 5 * second}, "plane0", "dead", "kill"}, {span{8 * second, 10 * second}, "plane1", "freeze", ""},
		{span{8 * second, 9 * second}, "broker", "freeze", ""}, {span{8 * second, 9 * second}, "plane2", "freeze", ""}, {span{9 * second, 10 * second}, "plane2", "kill", ""},
		{span{9 * second, 10 * second}, "broker", "dead", "kill"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
