import type { PageModel } from '../src/admin/page/page-model.ts';
import { Table } from './table.tsx';
import { Moment } from './time.tsx';

/** What has changed, and what the log says: the last 50. */
export function Events({ model: { events } }: { readonly model: PageModel }) {
  return (
    <section aria-labelledby="events">
      <h2 id="events">Events</h2>
      {events.length === 0 && <p class="dim">Nothing has happened yet.</p>}
      {events.length > 0 && (
        <Table
          class="events"
          labelledBy="events"
          caption={`The last ${events.length} changes and lines of the log`}
          columns={['Time', 'Event', 'About']}
        >
          {events.map((event, index) => (
            <tr key={`${event.at} ${index}`} class={event.level}>
              <td class="when">
                <Moment at={event.at} />
              </td>
              <td>
                {event.level !== 'info' && (
                  <strong class={event.level === 'error' ? 'bad' : 'warn'}>{event.level} </strong>
                )}
                {event.revision > 0 && <span class="dim">#{event.revision} </span>}
                {event.text}
              </td>
              <td class="mono dim">{event.detail}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
