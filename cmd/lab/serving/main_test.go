package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable: a table with comments is answered row by row, and the rows without an answer say why.
func TestTable(t *testing.T) {
	folder := t.TempDir()
	cases, runs := filepath.Join(folder, "serving.csv"), filepath.Join(folder, "runs.csv")
	for path, text := range map[string]string{
		cases: "# a comment, with a comma\nid,area,model,gpu,gpus,engine,layout,dtype,input_tokens,output_tokens,load,arm,m_ttft_ms,m_tpot_ms\n" +
			"a,decode,qwen3-32b,h100-sxm,2,vLLM,TP2,bf16,1024,64,8 at once,,154,15.9\nb,decode,nothing,h100-sxm,2,vLLM,TP2,bf16,1024,64,8 at once,,154,15.9\n",
		runs: "id,family,model,gpu,schedule,rollout_replicas,rollout_tp,rollout_dtype,prompts,samples,mean_prompt_tokens,mean_response_tokens,cap_tokens,cap_of,note,m_gen_s,m_prefix_hit\n" +
			"c,routing,qwen3-4b,h200,colocated,2,1,bf16,8,8,1000,100,400,response,least in flight,12,0.1\nd,verl,qwen3-4b,h200,colocated,2,1,bf16,8,8,1000,100,400,response,,12,0.1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := run(&out, cases, runs); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"| a | each token, ms | 15.9 |", "| b | model \"nothing\" is not known", "| c | generation, s | 12 |", "| each token, ms | 1 |"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("%q is missing in\n%s", words, out.String())
		}
	}
	if strings.Contains(out.String(), "| d |") {
		t.Error("a row of another family is answered")
	}
}

// TestSilicon: aggregated rows of known models are answered once, others left out.
func TestSilicon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "silicon.csv")
	line := "x,c=1; silicon_concurrency=8; y,vllm,openai/gpt-oss-120b,h100_sxm,fp4,agg,1024,64,16,4,1,1,100,8\n"
	text := "id,silicon_data_source,backend,model_path,system,precision,mode,isl,osl,batch_size,tp_size,attention_dp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n" +
		line + line + strings.Replace(line, "agg", "disagg", 1) + strings.Replace(line, "openai/gpt-oss-120b", "other", 1) + strings.Replace(line, "fp4,agg,1024,64,16,4,1,1", "fp4,agg,1024,64,16,8,8,8", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := sample(&out, path); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| gpt-oss-120b, h100-sxm, mxfp4, vllm | 2 |") || !strings.Contains(out.String(), "| all | 2 |") {
		t.Error(out.String())
	}
}
