// Receipts of what was erased, as this browser has seen them; none has a word of a conversation.
import { store, stored } from "./storage.js";

const KEPT = 20;

/** @typedef {{ id: string, what?: string, requested_at: string, finished_at: string | null, deleted: Record<string, number>, problem?: string }} Receipt */

/** Return the name under which receipts are stored. @param {boolean} isOperator */
export const receiptsOf = (isOperator) => (isOperator ? "erasures-of-people" : "erasures");

/** Return receipts with another one, newest first. @param {Receipt[]} known @param {Receipt} receipt */
export const withReceipt = (known, receipt) => [receipt, ...known.filter((other) => other.id !== receipt.id)].slice(0, KEPT);

/**
 * Keep the receipt of a conversation that was deleted.
 * @param {{ session_id: string, at: string, deleted: Record<string, number> }} deletion
 * @param {boolean} isOperator
 */
export function keepReceipt(deletion, isOperator) {
  const { session_id: id, at, deleted } = deletion;
  const receipt = { id, what: "Conversation", requested_at: at, finished_at: at, deleted };
  const name = receiptsOf(isOperator);
  store(name, withReceipt(stored(name, []), receipt));
}
