// What users of the package import.

export {
  AdapterClient,
  type AdapterOptions,
  type DeliveryOptions,
  runAdapter,
  type SendPiece,
} from "./adapter.js";
export { Connection, type ConnectionOptions, openConnection } from "./connection.js";
export type * from "./contract.js";
export { type Piece, splitText, type TextLimit } from "./delivery/pieces.js";
export { type CommandResult, EditorTools } from "./editor_tools.js";
export * from "./errors.js";
export { deleted, edited, pressed, reacted } from "./events.js";
export { FrontEndTools } from "./front_end_tools.js";
export type { DraftOptions, DraftPlatform } from "./live/drafts.js";
export type { TurnReader, TurnUpdate } from "./live/turn_reader.js";
export type { ShowTyping } from "./live/typing_indicator.js";
export type { Log } from "./logs.js";
export { promptOf } from "./prompt.js";
export { SessionApi, type SessionApiOptions, type Submission } from "./session_api.js";
export {
  answerTo,
  runStreamWorker,
  type StreamAnswer,
  type StreamHandler,
  StreamWorker,
  type StreamWorkerOptions,
} from "./stream_worker.js";
export type { TitleMaker } from "./titles.js";
export {
  type Answer,
  Ask,
  type Handler,
  type QuestionAnswer,
  type QuestionFields,
  type Reply,
  type Turn,
} from "./turn.js";
export { runWorker, TurnWorker, type WorkerOptions } from "./turn_worker.js";
