// Command producer creates tasks through CodeQ's producer client and prints what happened, one line
// of JSON each. With -again it opens another stream when one has ended, and repeats there what was
// not answered, as an application would.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/osvaldoandrade/codeq/pkg/producerclient"

	"codeqcompat/internal/lines"
)

// Between a stream that ended and the next.
const pause = 50 * time.Millisecond

// The client may wait for ever for an answer that a stream, which ended meanwhile, cannot give.
const patience = 5 * time.Second

func main() {
	url := flag.String("url", "localhost:9092", "host and port of the producer stream")
	token := flag.String("token", "", "bearer token")
	mode := flag.String("mode", "single", "single or batch")
	batch := flag.Int("batch", 8, "tasks per message in batch mode")
	concurrency := flag.Int("concurrency", 16, "creates at once in single mode")
	count := flag.Int("count", 1, "tasks to create")
	command := flag.String("command", "compat", "command of the tasks")
	payload := flag.String("payload", `{"n":%d}`, "payload of the tasks; %d is their number")
	priority := flag.Int("priority", 0, "0 to 9")
	attempts := flag.Int("attempts", 0, "at most; 0 for the server's default")
	webhook := flag.String("webhook", "", "where to report the end of a task")
	key := flag.String("key", "", "idempotency key; %d is the number of the task")
	delay := flag.Int("delay", 0, "seconds")
	runAt := flag.String("run-at", "", "RFC 3339")
	trace := flag.String("trace", "", "W3C trace parent")
	again := flag.Bool("again", false, "repeats on another stream what one left unanswered")
	flag.Parse()

	request := func(index int) producerclient.CreateRequest {
		made := producerclient.CreateRequest{
			Command:        *command,
			Payload:        []byte(numbered(*payload, index)),
			Priority:       *priority,
			MaxAttempts:    *attempts,
			Webhook:        *webhook,
			IdempotencyKey: numbered(*key, index),
			DelaySeconds:   *delay,
			TraceParent:    *trace,
		}
		if at, err := time.Parse(time.RFC3339Nano, *runAt); err == nil {
			made.RunAt = at
		}
		return made
	}

	ctx := context.Background()
	client, err := producerclient.New(producerclient.Config{
		Addr:   *url,
		Token:  *token,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		lines.End(err)
	}
	defer client.Close()
	session, err := client.Connect(ctx)
	if err != nil {
		lines.End(err)
	}
	lines.Print(map[string]any{
		"event": "hello", "tenant": session.TenantID(), "subject": session.Subject(),
	})

	if *again {
		lines.End(repeat(client, session, *concurrency, *count, request))
	}
	if *mode == "batch" {
		for first := 0; first < *count; first += *batch {
			var requests []producerclient.CreateRequest
			for index := first; index < min(first+*batch, *count); index++ {
				requests = append(requests, request(index))
			}
			results, err := session.ProduceBatch(ctx, requests)
			if err != nil {
				lines.End(err)
			}
			for place, result := range results {
				printAck(first+place, result.TaskID, result.Err)
			}
		}
	} else {
		var group sync.WaitGroup
		slots := make(chan struct{}, *concurrency)
		for index := range *count {
			slots <- struct{}{}
			group.Go(func() {
				id, err := session.Produce(ctx, request(index))
				printAck(index, id, err)
				<-slots
			})
		}
		group.Wait()
	}
	lines.End(session.Close())
}

// repeat creates one by one, on one stream after another, until each is answered.
func repeat(
	client *producerclient.Client, session *producerclient.Session, concurrency, count int,
	request func(int) producerclient.CreateRequest,
) error {
	left := make([]int, count)
	for index := range left {
		left[index] = index
	}
	for {
		left = createOn(session, concurrency, left, request)
		err := session.Close()
		if len(left) == 0 {
			return err
		}
		for session = nil; session == nil; {
			time.Sleep(pause)
			if session, err = client.Connect(context.Background()); err != nil {
				slog.Info("no stream", "error", err)
			}
		}
	}
}

// createOn gives what was not answered.
func createOn(
	session *producerclient.Session, concurrency int, indexes []int,
	request func(int) producerclient.CreateRequest,
) (left []int) {
	var group sync.WaitGroup
	var mutex sync.Mutex
	slots := make(chan struct{}, concurrency)
	for _, index := range indexes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			id, err := session.Produce(ctx, request(index))
			if err == nil {
				printAck(index, id, nil)
				return
			}
			lines.Print(map[string]any{"event": "lost", "index": index, "error": err.Error()})
			mutex.Lock()
			defer mutex.Unlock()
			left = append(left, index)
		})
	}
	group.Wait()
	return left
}

func numbered(text string, index int) string {
	return strings.ReplaceAll(text, "%d", strconv.Itoa(index))
}

func printAck(index int, id string, err error) {
	line := map[string]any{"event": "ack", "index": index, "id": id, "error": ""}
	if err != nil {
		line["error"] = err.Error()
	}
	lines.Print(line)
}
