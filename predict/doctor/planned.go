package doctor

// plannedChecks come first: without engines no other change makes the document run.
var plannedChecks = []check{
	{Kind{
		Code: "plan-without-engines", Severities: []Severity{Error}, Keys: []string{"hardware.model", "hardware.gpu", "hardware.shape"},
		When:  "the document is of a plan, such as `headway plan --write` makes, and its engines are the built-in toy; `run` and `serve` refuse it",
		Known: "arithmetic: the keys of the document",
	}, (*examination).planned},
}

// planned looks for a plan's model or GPUs beside the built-in toy.
func (e *examination) planned() {
	key := e.document.PlanKey()
	if key == "" {
		return
	}
	f := e.add(Error, key, Arithmetic)
	f.What = "headway run and serve refuse the document: it is of a plan, and its engines are the built-in toy"
	f.Why = "the toy would be trained in the model's stead (--set hardware=null does); the other findings are about the plan's rules"
	f.Do = "add engines, model.path and environment of your own; headway init DIR --trainer=hf writes an example"
}
