"""Typed client of the requests about the state and the declarations of the service."""

from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.operators.service_state import (
    ServiceCatalog,
    ServiceCatalogReply,
    ServiceOverview,
    ServiceOverviewReply,
)


class ServiceApi(Api):
    """Asks for the state of the whole service, and for its declarations.

    Raises (from every method):
        ForbiddenRequestError: The caller is no operator.
        UnansweredRequestError: The service did not reply in time.
    """

    async def overview(self) -> ServiceOverviewReply:
        """Return the backlogs of the service and their ages; observers may ask as well."""
        stamp = self._stamp()
        request = ServiceOverview(id=stamp["id"], at=stamp["at"])
        return await self._ask("service", "overview", request, ServiceOverviewReply)

    async def catalog(self) -> ServiceCatalogReply:
        """Return the declared platforms, accounts, profiles and agents, without secrets."""
        stamp = self._stamp()
        request = ServiceCatalog(id=stamp["id"], at=stamp["at"])
        return await self._ask("service", "catalog", request, ServiceCatalogReply)
