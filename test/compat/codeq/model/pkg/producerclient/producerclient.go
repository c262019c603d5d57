// Package producerclient is a model of CodeQ's package of this name: its exported names, and the
// behaviour that a server can notice, written for Tidemill's tests from the documented contract.
// No code of it is CodeQ's.
//
// What a server can notice: calls share one stream and number their tasks from 1; each waits for
// the ack of its number, in whatever order acks come; a stream that dies fails all that wait; Close
// closes the sending side and then cancels.
package producerclient

import (
	"context"
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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/osvaldoandrade/codeq/internal/contract"
)

type Config struct {
	Addr        string
	Token       string
	DialOptions []grpc.DialOption
	Logger      *slog.Logger
}

type CreateRequest struct {
	Command          string
	Payload          []byte
	Priority         int
	Webhook          string
	MaxAttempts      int
	IdempotencyKey   string
	RunAt            time.Time
	DelaySeconds     int
	TraceParent      string
	TraceState       string
	DeduplicationKey string
	TaskID           string
}

type BatchResult struct {
	TaskID string
	Err    error
}

type Client struct {
	config Config
	conn   *grpc.ClientConn
}

func New(config Config) (*Client, error) {
	if config.Addr == "" || config.Token == "" {
		return nil, errors.New("producerclient: Addr and Token are required")
	}
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
		return nil, fmt.Errorf("producerclient: %w", err)
	}
	return &Client{config: config, conn: conn}, nil
}

func (c *Client) Close() error { return c.conn.Close() }

// Session is one stream. Its methods may be called at once.
type Session struct {
	config  Config
	stream  *contract.Stream
	cancel  context.CancelFunc
	tenant  string
	subject string
	ended   chan struct{}

	lock    sync.Mutex
	seq     uint64
	waiting map[uint64]chan BatchResult
	failure error
}

func (c *Client) Connect(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := contract.Open(ctx, c.conn, "producerpb")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("producerclient: %w", err)
	}
	ack, err := stream.Hello(contract.Fields{"token": c.config.Token})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("producerclient: %w", err)
	}
	session := &Session{
		config:  c.config,
		stream:  stream,
		cancel:  cancel,
		tenant:  contract.Get(ack, "tenant_id").String(),
		subject: contract.Get(ack, "subject").String(),
		ended:   make(chan struct{}),
		waiting: map[uint64]chan BatchResult{},
	}
	go session.read()
	return session, nil
}

func (s *Session) TenantID() string { return s.tenant }

func (s *Session) Subject() string { return s.subject }

func (s *Session) Close() error {
	_ = s.stream.CloseSend()
	s.cancel()
	<-s.ended
	return nil
}

// Produce stores one task and gives its id.
func (s *Session) Produce(ctx context.Context, request CreateRequest) (string, error) {
	task, answer, err := s.number(request)
	if err != nil {
		return "", err
	}
	if err := s.stream.Send("create", task); err != nil {
		return "", fmt.Errorf("producerclient: %w", err)
	}
	select {
	case result := <-answer:
		return result.TaskID, result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ProduceBatch stores many tasks in one message and gives what became of each.
func (s *Session) ProduceBatch(
	ctx context.Context, requests []CreateRequest,
) ([]BatchResult, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	var tasks []proto.Message
	var answers []chan BatchResult
	for _, request := range requests {
		task, answer, err := s.number(request)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
		answers = append(answers, answer)
	}
	batch := contract.New("producerpb.CreateTaskBatch", contract.Fields{"tasks": tasks})
	if err := s.stream.Send("create_batch", batch); err != nil {
		return nil, fmt.Errorf("producerclient: %w", err)
	}
	var results []BatchResult
	for _, answer := range answers {
		select {
		case result := <-answer:
			results = append(results, result)
		case <-ctx.Done():
			return results, ctx.Err()
		}
	}
	return results, nil
}

func (s *Session) number(request CreateRequest) (proto.Message, chan BatchResult, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.failure != nil {
		return nil, nil, s.failure
	}
	s.seq++
	answer := make(chan BatchResult, 1)
	s.waiting[s.seq] = answer
	fields := contract.Fields{
		"seq":               s.seq,
		"command":           request.Command,
		"payload":           request.Payload,
		"priority":          int32(request.Priority),
		"webhook":           request.Webhook,
		"max_attempts":      int32(request.MaxAttempts),
		"idempotency_key":   request.IdempotencyKey,
		"delay_seconds":     int32(request.DelaySeconds),
		"trace_parent":      request.TraceParent,
		"trace_state":       request.TraceState,
		"deduplication_key": request.DeduplicationKey,
		"task_id":           request.TaskID,
	}
	if !request.RunAt.IsZero() {
		fields["run_at"] = timestamppb.New(request.RunAt)
	}
	return contract.New("producerpb.CreateTask", fields), answer, nil
}

func (s *Session) read() {
	defer close(s.ended)
	for {
		name, body, err := s.stream.Receive()
		if err != nil {
			s.fail(err)
			return
		}
		switch name {
		case "create_ack":
			s.deliver(body)
		case "create_ack_batch":
			for _, ack := range contract.List(body, "acks") {
				s.deliver(ack)
			}
		case "error":
			s.config.Logger.Warn("server error",
				"code", contract.Get(body, "code").String(),
				"message", contract.Get(body, "message").String())
		}
	}
}

func (s *Session) deliver(ack protoreflect.Message) {
	seq := contract.Get(ack, "seq").Uint()
	s.lock.Lock()
	answer := s.waiting[seq]
	delete(s.waiting, seq)
	s.lock.Unlock()
	if answer == nil {
		s.config.Logger.Warn("ack of an unknown task", "seq", seq)
		return
	}
	result := BatchResult{TaskID: contract.Get(ack, "task_id").String()}
	if !contract.Get(ack, "ok").Bool() {
		result = BatchResult{Err: errors.New(contract.Get(ack, "error_message").String())}
	}
	answer <- result
}

func (s *Session) fail(cause error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.failure = errors.New("producerclient: stream closed")
	if !errors.Is(cause, io.EOF) {
		s.failure = fmt.Errorf("producerclient: stream closed: %w", cause)
	}
	for _, answer := range s.waiting {
		answer <- BatchResult{Err: s.failure}
	}
	s.waiting = nil
}
