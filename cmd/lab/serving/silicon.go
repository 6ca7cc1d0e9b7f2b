package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/predict/serving"
)

// Names that the sample has for our presets. A model that is not here is left out.
var (
	siliconModels = map[string]string{
		"Qwen/Qwen3-32B": "qwen3-32b", "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b", "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
		"meta-llama/Llama-3.1-70B": "llama-3.1-70b", "openai/gpt-oss-120b": "gpt-oss-120b", "deepseek-ai/DeepSeek-V3": "deepseek-v3", "deepseek-ai/DeepSeek-R1": "deepseek-v3",
	}
	siliconGPUs        = map[string]string{"h100_sxm": "h100-sxm", "h200_sxm": "h200", "b200_sxm": "b200"}
	siliconTypes       = map[string]string{"fp8": "fp8", "fp4": "nvfp4", "int4": "int4"}
	siliconConcurrency = regexp.MustCompile(`silicon_concurrency=(\d+)`)
)

// siliconRow turns an aggregated row of the sample into one of ours; nil for others.
func siliconRow(row map[string]string) map[string]string {
	model, gpu := siliconModels[row["model_path"]], siliconGPUs[row["system"]]
	if row["mode"] != "agg" || model == "" || gpu == "" {
		return nil
	}
	tensor, _ := strconv.Atoi(row["tp_size"])
	data, _ := strconv.Atoi(row["attention_dp_size"])
	data = max(data, 1)
	atOnce, _ := strconv.Atoi(row["batch_size"])
	atOnce *= data
	if found := siliconConcurrency.FindStringSubmatch(row["silicon_data_source"]); found != nil {
		atOnce, _ = strconv.Atoi(found[1])
	}
	if tensor < 1 || atOnce < 1 {
		return nil
	}
	dtype := siliconTypes[row["precision"]]
	switch {
	case model == "gpt-oss-120b":
		dtype = "mxfp4"
	case dtype == "":
		dtype = "bf16"
	}
	layout, gpus := fmt.Sprintf("TP%d EP%s", tensor, row["moe_ep_size"]), max(tensor, data)
	if data > 1 {
		layout = fmt.Sprintf("TP%d DP%d EP%s", max(tensor/data, 1), data, row["moe_ep_size"])
	}
	return map[string]string{
		"id": row["id"], "model": model, "gpu": gpu, "gpus": strconv.Itoa(gpus), "engine": row["backend"], "layout": strings.ReplaceAll(layout, "EP0", "EP1"), "dtype": dtype,
		"input_tokens": row["isl"], "output_tokens": row["osl"], "load": fmt.Sprintf("%d at once", atOnce), "m_tpot_ms": row["silicon_tpot_ms"], "m_ttft_ms": row["silicon_ttft_ms"],
	}
}

// offs are relative errors of a kind of row.
type offs struct{ token, first []float64 }

// sample answers the aggregated rows of the sample and prints medians. Rows with equal inputs count once.
func sample(out io.Writer, path string) error {
	rows, err := table(path)
	if err != nil {
		return err
	}
	by, seen := map[string]*offs{}, map[string]bool{}
	all := &offs{}
	for _, row := range rows {
		ours := siliconRow(row)
		if ours == nil {
			continue
		}
		key := strings.Join([]string{ours["model"], ours["gpu"], ours["dtype"], ours["engine"]}, ", ")
		inputs := strings.Join([]string{key, ours["layout"], ours["input_tokens"], ours["output_tokens"], ours["load"]}, "|")
		token, _ := strconv.ParseFloat(ours["m_tpot_ms"], 64)
		first, _ := strconv.ParseFloat(ours["m_ttft_ms"], 64)
		if seen[inputs] || token <= 0 || first <= 0 {
			continue
		}
		seen[inputs] = true
		a, err := serving.Of(ours)
		if err != nil {
			continue
		}
		if by[key] == nil {
			by[key] = &offs{}
		}
		for _, one := range []*offs{by[key], all} {
			one.token = append(one.token, *a.TPOTMS/token-1)
			one.first = append(one.first, *a.TTFTMS/first-1)
		}
	}
	fmt.Fprintln(out, "| model, GPU, numbers, engine | rows | each token: median, of the absolute | first token: median, of the absolute |\n|---|---:|---:|---:|")
	for _, key := range slices.Sorted(maps.Keys(by)) {
		by[key].print(out, key)
	}
	if len(all.token) > 0 {
		all.print(out, "all")
	}
	return nil
}

func (o *offs) print(out io.Writer, name string) {
	fmt.Fprintf(out, "| %s | %d | %+.0f %%, %.0f %% | %+.0f %%, %.0f %% |\n", name, len(o.token),
		100*median(o.token), 100*median(absolute(o.token)), 100*median(o.first), 100*median(absolute(o.first)))
}

func absolute(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Abs(v)
	}
	return out
}
