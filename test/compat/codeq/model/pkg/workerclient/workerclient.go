// Package workerclient is a model of CodeQ's package of this name: its exported names, and the
// behaviour that a server can notice, written for Tidemill's tests from the documented contract.
// No code of it is CodeQ's.
//
// What a server can notice: slots share one stream; each asks with a ready of its own, and asks
// again only after the tasks that came were handled; a worker whose slots are all busy stops
// reading, acks included; acks are dropped; results of a batch go back in one message, but nacks
// and abandons one by one; nothing is renewed; a cancelled context cancels the stream.
package workerclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/osvaldoandrade/codeq/internal/contract"
)

type Config struct {
	Addr         string
	Token        string
	WorkerID     string
	Commands     []string
	Concurrency  int
	LeaseSeconds int
	BatchSize    int
	IdleBackoff  time.Duration
	DialOptions  []grpc.DialOption
	Logger       *slog.Logger
}

type Task struct {
	ID          string
	Command     string
	Payload     []byte
	Priority    int
	Attempts    int
	MaxAttempts int
	TenantID    string
	Webhook     string
	LeaseUntil  string
}

type Handler func(ctx context.Context, t Task) Result

// Result says how a task ended. Its zero value is a completion, as in the original.
type Result struct {
	kind         string
	body         map[string]any
	text         string
	delaySeconds int
}

func Completed(body map[string]any) Result { return Result{body: body} }

func Failed(err string) Result { return Result{kind: "failed", text: err} }

func Nack(delaySeconds int, reason string) Result {
	return Result{kind: "nack", delaySeconds: max(0, delaySeconds), text: reason}
}

func Abandon() Result { return Result{kind: "abandon"} }

type Client struct {
	config Config
	conn   *grpc.ClientConn
}

func New(config Config) (*Client, error) {
	if config.Addr == "" || config.Token == "" {
		return nil, errors.New("workerclient: Addr and Token are required")
	}
	config.Concurrency = max(1, config.Concurrency)
	config.BatchSize = max(1, config.BatchSize)
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	options := config.DialOptions
	if len(options) == 0 {
		plain := grpc.WithTransportCredentials(insecure.NewCredentials())
		options = []grpc.DialOption{plain}
	}
	conn, err := grpc.NewClient(config.Addr, options...)
	if err != nil {
		return nil, fmt.Errorf("workerclient: %w", err)
	}
	return &Client{config: config, conn: conn}, nil
}

func (c *Client) Close() error { return c.conn.Close() }

// Run handles tasks until the context is cancelled or the stream ends.
func (c *Client) Run(ctx context.Context, handle Handler) error {
	stream, err := contract.Open(ctx, c.conn, "workerpb")
	if err != nil {
		return fmt.Errorf("workerclient: %w", err)
	}
	_, err = stream.Hello(contract.Fields{"token": c.config.Token, "worker_id": c.config.WorkerID})
	if err != nil {
		return fmt.Errorf("workerclient: %w", err)
	}
	run := &run{config: c.config, stream: stream, handle: handle, batches: make(chan []Task)}
	var slots sync.WaitGroup
	for range c.config.Concurrency {
		slots.Go(func() { run.slot(ctx) })
	}
	err = run.read(ctx)
	close(run.batches)
	slots.Wait()
	if err != nil {
		return fmt.Errorf("workerclient: %w", err)
	}
	return ctx.Err()
}

type run struct {
	config  Config
	stream  *contract.Stream
	handle  Handler
	batches chan []Task // Without a buffer: whoever cannot take tasks cannot be sent any.
}

func (r *run) read(ctx context.Context) error {
	for {
		name, body, err := r.stream.Receive()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var tasks []Task
		switch name {
		case "task":
			tasks = []Task{toTask(contract.Get(body, "task").Message())}
		case "task_batch":
			for _, task := range contract.List(body, "tasks") {
				tasks = append(tasks, toTask(task))
			}
		case "error":
			r.config.Logger.Warn("server error",
				"code", contract.Get(body, "code").String(),
				"message", contract.Get(body, "message").String())
		}
		if len(tasks) == 0 {
			continue
		}
		select {
		case r.batches <- tasks:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *run) slot(ctx context.Context) {
	for {
		ready := contract.New("workerpb.Ready", contract.Fields{
			"commands":      r.config.Commands,
			"lease_seconds": int32(r.config.LeaseSeconds),
			"count":         int32(r.config.BatchSize),
		})
		if r.stream.Send("ready", ready) != nil {
			return
		}
		select {
		case tasks, isOpen := <-r.batches:
			if !isOpen {
				return
			}
			if err := r.work(ctx, tasks); err != nil {
				r.config.Logger.Warn("results were not sent", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *run) work(ctx context.Context, tasks []Task) error {
	var results []proto.Message
	for _, task := range tasks {
		result := r.handle(ctx, task)
		fields := contract.Fields{"task_id": task.ID}
		switch result.kind {
		case "nack":
			fields["delay_seconds"] = int32(result.delaySeconds)
			fields["reason"] = result.text
			if err := r.stream.Send("nack", contract.New("workerpb.Nack", fields)); err != nil {
				return err
			}
			continue
		case "abandon":
			if err := r.stream.Send("abandon", contract.New("workerpb.Abandon", fields)); err != nil {
				return err
			}
			continue
		case "failed":
			fields["status"] = "FAILED"
			fields["error"] = result.text
		default:
			fields["status"] = "COMPLETED"
			if result.body != nil {
				body, err := json.Marshal(result.body)
				if err != nil {
					return err
				}
				fields["result_json"] = body
			}
		}
		results = append(results, contract.New("workerpb.Result", fields))
	}
	if len(results) == 0 {
		return nil
	}
	if r.config.BatchSize == 1 {
		return r.stream.Send("result", results[0])
	}
	batch := contract.New("workerpb.ResultBatch", contract.Fields{"results": results})
	return r.stream.Send("result_batch", batch)
}

func toTask(message protoreflect.Message) Task {
	text := func(name string) string { return contract.Get(message, name).String() }
	number := func(name string) int { return int(contract.Get(message, name).Int()) }
	return Task{
		ID:          text("id"),
		Command:     text("command"),
		Payload:     contract.Get(message, "payload").Bytes(),
		Priority:    number("priority"),
		Attempts:    number("attempts"),
		MaxAttempts: number("max_attempts"),
		TenantID:    text("tenant_id"),
		Webhook:     text("webhook"),
		LeaseUntil:  text("lease_until"),
	}
}
