// Build events about existing messages: edits, deletes, reactions, presses.

import type { InboundEvent, Press, ReturnAddress } from "./contract.js";
import { stamp } from "./wire.js";

type Id = string | number;

/**
 * Return the edit of a message, which is given as it is now.
 *
 * With `countsAsNew` it starts a turn if the message itself was never published.
 */
export function edited(
  message: InboundEvent,
  options: { version?: Id; eventId?: Id; countsAsNew?: boolean } = {},
): InboundEvent {
  const { text, attachments, location, contacts, poll, sticker } = message;
  return about(message, "edit", {
    ...{ text, attachments, location, contacts, poll, sticker },
    version: options.version,
    event_id: options.eventId,
    counts_as_new: options.countsAsNew || undefined,
  });
}

/** Return the delete of a message; only its address counts. */
export function deleted(message: InboundEvent, eventId?: Id): InboundEvent {
  return about(message, "delete", { event_id: eventId });
}

/** Return a reaction to a message, whose sender is the author of the reaction. */
export function reacted(
  message: InboundEvent,
  reaction: string,
  options: { eventId?: Id; removed?: boolean } = {},
): InboundEvent {
  const { eventId, removed } = options;
  return about(message, "reaction", {
    text: reaction,
    event_id: eventId,
    removed: removed || undefined,
  });
}

/** Return the press of a button on a message, whose sender is who pressed it; it starts a turn. */
export function pressed(
  message: InboundEvent,
  press: Press,
  eventId: Id,
  returnAddress?: ReturnAddress,
): InboundEvent {
  return about(message, "action", { press, event_id: eventId, return_address: returnAddress });
}

/** Return an event with the address of a message, and these fields instead of its content. */
function about(
  message: InboundEvent,
  kind: InboundEvent["kind"],
  fields: { [K in keyof InboundEvent]?: InboundEvent[K] | undefined },
): InboundEvent {
  const { platform, account, scope, profile, chat, thread_id, sender, message_id } = message;
  const address = { platform, account, scope, profile, chat, thread_id, sender, message_id };
  const all = Object.entries({ ...address, ...fields }).filter(([, value]) => value != null);
  return { ...stamp(), kind, ...Object.fromEntries(all) } as InboundEvent;
}
