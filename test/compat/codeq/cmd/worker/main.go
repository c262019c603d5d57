// Command worker handles tasks through CodeQ's worker client and prints what happened, one line of
// JSON each. It runs until its standard input ends or the stream does; with -again it then opens
// another stream, as an application would.
//
// A payload may say how its task ends: {"outcome": "completed", "nil", "zero", "failed", "nack" or
// "abandon"}. Every other task is completed with its own payload as the body.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/osvaldoandrade/codeq/pkg/workerclient"

	"codeqcompat/internal/lines"
)

// Between a stream that ended and the next.
const pause = 50 * time.Millisecond

func main() {
	url := flag.String("url", "localhost:9091", "host and port of the worker stream")
	token := flag.String("token", "", "bearer token")
	worker := flag.String("worker", "go-worker", "id of the worker")
	commands := flag.String("commands", "", "commands to handle, by commas; all if empty")
	mode := flag.String("mode", "single", "single or batch")
	batch := flag.Int("batch", 8, "tasks per ready in batch mode")
	concurrency := flag.Int("concurrency", 1, "slots")
	lease := flag.Int("lease", 0, "seconds; 0 for the server's default")
	count := flag.Int64("count", 0, "says so when as many tasks were handled")
	again := flag.Bool("again", false, "opens another stream when one has ended")
	flag.Parse()

	config := workerclient.Config{
		Addr:         *url,
		Token:        *token,
		WorkerID:     *worker,
		Concurrency:  *concurrency,
		LeaseSeconds: *lease,
		BatchSize:    1,
		Logger:       slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	if *commands != "" {
		config.Commands = strings.Split(*commands, ",")
	}
	if *mode == "batch" {
		config.BatchSize = *batch
	}
	client, err := workerclient.New(config)
	if err != nil {
		lines.End(err)
	}
	defer client.Close()

	// Results are sent after the handler returned, and acks are dropped: only who watches the
	// server knows when all is done, and says so by closing the input.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	var handled atomic.Int64
	handle := func(_ context.Context, task workerclient.Task) workerclient.Result {
		outcome, result := decide(task.Payload)
		lines.Print(map[string]any{
			"event":       "task",
			"id":          task.ID,
			"command":     task.Command,
			"payload":     string(task.Payload),
			"priority":    task.Priority,
			"attempts":    task.Attempts,
			"maxAttempts": task.MaxAttempts,
			"tenant":      task.TenantID,
			"webhook":     task.Webhook,
			"leaseUntil":  task.LeaseUntil,
			"outcome":     outcome,
		})
		if handled.Add(1) == *count {
			lines.Print(map[string]any{"event": "count", "count": *count})
		}
		return result
	}
	err = client.Run(ctx, handle)
	for *again && ctx.Err() == nil {
		slog.Info("the stream ended", "error", err)
		time.Sleep(pause)
		err = client.Run(ctx, handle)
	}
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		err = nil
	}
	lines.End(err)
}

func decide(payload []byte) (string, workerclient.Result) {
	var wish struct {
		Outcome string `json:"outcome"`
		Reason  string `json:"reason"`
		Delay   int    `json:"delay"`
	}
	_ = json.Unmarshal(payload, &wish)
	switch wish.Outcome {
	case "nil":
		return wish.Outcome, workerclient.Completed(nil)
	case "zero":
		return wish.Outcome, workerclient.Result{}
	case "failed":
		return wish.Outcome, workerclient.Failed(wish.Reason)
	case "nack":
		return wish.Outcome, workerclient.Nack(wish.Delay, wish.Reason)
	case "abandon":
		return wish.Outcome, workerclient.Abandon()
	}
	return "completed", workerclient.Completed(map[string]any{"echo": string(payload)})
}
