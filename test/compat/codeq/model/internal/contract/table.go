package contract

// Written from the documented contract and from no file of proto/, so that a slip in one of the two
// shows as a difference. A field is name=number:type; the type is string unless given, a * repeats
// it. The fields of an event are one oneof.
var table = []pack{
	{
		name: "workerpb", service: "WorkerStream", from: "WorkerEvent", to: "ServerEvent",
		messages: map[string]string{
			"Task": "id=1 command=2 payload=3:bytes priority=4:int32 webhook=5 " +
				"max_attempts=6:int32 status=7 worker_id=8 lease_until=9 attempts=10:int32 " +
				"tenant_id=11 created_at=12:time updated_at=13:time",
			"Hello":          "token=1 worker_id=2",
			"Ready":          "commands=1:string* lease_seconds=2:int32 count=3:int32",
			"Result":         "task_id=1 status=2 result_json=3:bytes error=4",
			"Nack":           "task_id=1 delay_seconds=2:int32 reason=3",
			"Heartbeat":      "task_id=1 extend_seconds=2:int32",
			"Abandon":        "task_id=1",
			"ResultBatch":    "results=1:Result*",
			"HelloAck":       "worker_id=1 tenant_id=2",
			"TaskAssignment": "task=1:Task",
			"ResultAck":      "task_id=1 ok=2:bool error_message=3",
			"HeartbeatAck":   "task_id=1 ok=2:bool error_message=3",
			"AbandonAck":     "task_id=1 ok=2:bool error_message=3",
			"NackAck": "task_id=1 ok=2:bool error_message=3 applied_delay_seconds=4:int32 " +
				"dlq=5:bool",
			"ServerError":    "message=1 code=2",
			"TaskBatch":      "tasks=1:Task*",
			"ResultAckBatch": "acks=1:ResultAck*",
			"WorkerEvent": "hello=1:Hello ready=2:Ready result=3:Result nack=4:Nack " +
				"heartbeat=5:Heartbeat abandon=6:Abandon result_batch=7:ResultBatch",
			"ServerEvent": "hello_ack=1:HelloAck task=2:TaskAssignment result_ack=3:ResultAck " +
				"heartbeat_ack=4:HeartbeatAck nack_ack=5:NackAck abandon_ack=6:AbandonAck " +
				"error=7:ServerError task_batch=8:TaskBatch result_ack_batch=9:ResultAckBatch",
		},
	},
	{
		name: "producerpb", service: "ProducerStream", from: "ProducerEvent", to: "ServerEvent",
		messages: map[string]string{
			"Hello": "token=1",
			"CreateTask": "seq=1:uint64 command=2 payload=3:bytes priority=4:int32 webhook=5 " +
				"max_attempts=6:int32 idempotency_key=7 run_at=8:time delay_seconds=9:int32 " +
				"trace_parent=10 trace_state=11 deduplication_key=12 task_id=13",
			"CreateTaskBatch": "tasks=1:CreateTask*",
			"HelloAck":        "tenant_id=1 subject=2",
			"CreateAck":       "seq=1:uint64 ok=2:bool task_id=3 error_message=4",
			"ServerError":     "code=1 message=2",
			"CreateAckBatch":  "acks=1:CreateAck*",
			"ProducerEvent":   "hello=1:Hello create=2:CreateTask create_batch=3:CreateTaskBatch",
			"ServerEvent": "hello_ack=1:HelloAck create_ack=2:CreateAck error=3:ServerError " +
				"create_ack_batch=4:CreateAckBatch",
		},
	},
}
