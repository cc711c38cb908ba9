// A connection to NATS that waits for its server without a limit.

import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import {
  connect,
  credsAuthenticator,
  type NatsConnection,
  nkeyAuthenticator,
} from "@nats-io/transport-node";
import { ConnectionClosedError } from "./errors.js";
import { type Log, logToStderr } from "./logs.js";
import { inboxPrefix } from "./subjects.js";
import { Flag, now } from "./timing.js";

// Two unanswered pings reveal a connection whose peer vanished.
const PING_MS = 5000;
// Longer than a leader election in a cluster, so that clients do not all reconnect during one.
const MOVES_AFTER_MS = 6000;

export interface ConnectionOptions {
  /** One address or several of the same cluster; also with commas between them. */
  servers?: string | string[];
  /** Name of the connection in the monitoring of the server. */
  name?: string;
  /** The name that the permissions of the connection are bound to. */
  principal?: string | undefined;
  /** File with the seed of an nkey; read again at each connect. */
  nkeySeedFile?: string | undefined;
  /** A `.creds` file. */
  credentialsFile?: string | undefined;
  /** File with the certificates of the authority that the servers are verified with. */
  tlsCaFile?: string | undefined;
  log?: Log;
}

/** A connection, and whether it is usable now. */
export class Connection {
  readonly #connected = new Flag();
  /** Grows with each connect: the server forgets the requests of a lost connection. */
  generation = 0;
  #silentSince: number | undefined;

  constructor(
    readonly nats: NatsConnection,
    readonly principal: string | undefined,
    readonly log: Log,
    private readonly configured = 1,
    /** Whether it proved who it is, so that rights may be missing. */
    readonly isUser = false,
  ) {
    this.#connected.set();
    void this.#watch();
  }

  get isConnected(): boolean {
    return this.#connected.isSet && !this.nats.isClosed();
  }

  get maxPayload(): number {
    return this.nats.info?.max_payload ?? 1024 * 1024;
  }

  /** Return a new subject for replies. */
  newInbox(): string {
    const prefix = this.principal === undefined ? "_INBOX" : inboxPrefix(this.principal);
    return `${prefix}.${crypto.randomUUID().replaceAll("-", "")}`;
  }

  /**
   * Return once the connection is usable, the time is over, or the signal is aborted.
   *
   * Messages that are published while it is down reach the server much later, so callers wait here.
   */
  async untilConnected(ms?: number, signal?: AbortSignal): Promise<boolean> {
    this.requireOpen();
    await this.#connected.wait(ms, signal);
    this.requireOpen();
    return this.isConnected;
  }

  requireOpen(): void {
    if (this.nats.isClosed() || this.nats.isDraining()) {
      throw new ConnectionClosedError("the connection is closed");
    }
  }

  get #hasOthers(): boolean {
    return Math.max(this.configured, this.nats.info?.connect_urls?.length ?? 0) > 1;
  }

  noteAnswer(): void {
    this.#silentSince = undefined;
  }

  /** Record that no stream replied; use another server if that continues, as it may be cut off. */
  async noteSilence(): Promise<void> {
    this.#silentSince ??= now();
    if (now() - this.#silentSince < MOVES_AFTER_MS || !this.#hasOthers) return;
    this.#silentSince = undefined;
    this.log("nats_server_left");
    await this.nats.reconnect();
  }

  /** Send what is on its way, and close. */
  async close(): Promise<void> {
    if (this.nats.isClosed()) return;
    await (this.isConnected ? this.nats.drain() : this.nats.close());
  }

  async #watch(): Promise<void> {
    for await (const status of this.nats.status()) {
      if (status.type === "disconnect") {
        this.#connected.clear();
        this.log("nats_disconnected");
      } else if (status.type === "reconnect") {
        this.generation += 1;
        this.#connected.set();
        this.log("nats_reconnected");
      } else if (status.type === "error") {
        // Such as a denied publish, which appears nowhere else. A chat token is a digest without a
        // key, so it stays out of the log.
        const text = status.error.message.replaceAll(/\b[0-9a-f]{16}\b/g, "…");
        this.log("nats_refused", { error: text });
      }
    }
    // A closed connection wakes all that wait for it.
    this.#connected.set();
  }
}

/** Open a connection; it waits for its server, now and after each loss. */
export async function openConnection(options: ConnectionOptions = {}): Promise<Connection> {
  const { servers = "nats://127.0.0.1:4222", principal, log = logToStderr } = options;
  const seedFile = options.nkeySeedFile;
  const authenticator =
    seedFile !== undefined
      ? nkeyAuthenticator(() =>
          readFileSync(seedFile)
            .subarray()
            .filter((byte) => byte > 32),
        )
      : options.credentialsFile !== undefined
        ? credsAuthenticator(readFileSync(options.credentialsFile))
        : undefined;
  const addresses = (typeof servers === "string" ? servers.split(",") : servers).map((address) =>
    address.trim(),
  );
  const nats = await connect({
    servers: addresses,
    name: options.name ?? "chatlane client",
    maxReconnectAttempts: -1,
    waitOnFirstConnect: true,
    ignoreAuthErrorAbort: true,
    reconnectTimeWait: 250,
    pingInterval: PING_MS,
    maxPingOut: 2,
    ...(principal === undefined ? {} : { inboxPrefix: inboxPrefix(principal) }),
    ...(authenticator === undefined ? {} : { authenticator }),
    ...(options.tlsCaFile === undefined ? {} : { tls: { caFile: options.tlsCaFile } }),
  });
  return new Connection(nats, principal, log, addresses.length, authenticator !== undefined);
}

/** Return a name that says where this process runs: host and process id. */
export function processName(): string {
  return `${hostname()
    .replaceAll(/[^A-Za-z0-9._-]/g, "-")
    .slice(0, 100)}:${process.pid}`;
}
